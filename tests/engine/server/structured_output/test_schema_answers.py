"""Whatever is sampled under a schema's masks is of the schema.

``PATERNOSTER_SCHEMAS`` says how many are drawn. ``PATERNOSTER_SCHEMA_SUITE`` is a folder of JSON Schema's official
tests: ``json/tests/draft4`` or ``json/tests/draft2020-12`` of the source archive of the PyPI package ``jsonschema``.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from llguidance import LLTokenizer
from tests.engine.server.schemas import drawn
from tests.engine.server.tools_tokenizer import vocabulary_of

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.grammar import Grammar
from paternoster_engine.sampling.grammars.source import GrammarSource, to_grammar

DRAWN = int(os.environ.get("PATERNOSTER_SCHEMAS", "48"))
MAX_TOKENS = 96
SUITE = os.environ.get("PATERNOSTER_SCHEMA_SUITE")
DRAFTS = {"draft4": jsonschema_rs.Draft4Validator, "draft2020-12": jsonschema_rs.Draft202012Validator}
CLOSING = ['"', "}", "]", "0", "a", "-", ":", ","]


@pytest.fixture(scope="module")
def vocabulary(tokenizer: Tokenizer) -> LLTokenizer:
    return vocabulary_of(tokenizer)


@pytest.fixture(scope="module")
def short(tokenizer: Tokenizer) -> set[int]:
    """Tokens that bring an answer to its end."""
    return {token for text in CLOSING for token in tokenizer.encode(text)}


def compiled(vocabulary: LLTokenizer, schema: Any) -> Grammar:
    """Raises :class:`GrammarError` for what cannot be enforced."""
    try:
        text = to_grammar(GrammarSource("json", json.dumps(schema)), frozenset())
    except ValueError as error:
        raise GrammarError(str(error)) from error
    grammar = Grammar(vocabulary, text)
    grammar.check_masks()
    return grammar


def sampled(grammar: Grammar, tokenizer: Tokenizer, short: set[int], seed: int) -> str | None:
    """An answer of any tokens that are allowed; None if it comes to no end, or the grammar to a limit."""
    pick, matcher = random.Random(seed), grammar.start_matcher()
    tokens: list[int] = []
    while len(tokens) < MAX_TOKENS:
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits).tolist()
        if matcher.is_error():
            return None
        ends = [token for token in allowed if token in tokenizer.eos_token_ids]
        if ends and (len(ends) == len(allowed) or pick.random() < 0.5):
            return b"".join(tokenizer.token_bytes(token) for token in tokens).decode()
        going = [token for token in allowed if token not in ends]
        few = [token for token in going if token in short] if len(tokens) > 3 else []
        tokens.append(pick.choice(few if few and pick.random() < 0.8 else going))
        assert matcher.consume_token(tokens[-1]), matcher.get_error()
    return None


def test_answers_of_drawn_schemas_are_valid(tokenizer: Tokenizer, vocabulary: LLTokenizer, short: set[int]) -> None:
    counts: Counter[str] = Counter()
    wrong = []
    for seed in range(DRAWN):
        schema = drawn(seed)
        try:
            grammar = compiled(vocabulary, schema)
        except GrammarError:
            counts["refused"] += 1
            continue
        counts["compiled"] += 1
        answer = sampled(grammar, tokenizer, short, seed)
        if answer is not None:
            validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
            if not validator.is_valid(json.loads(answer)):
                wrong.append((schema, answer))
            counts["sampled"] += 1
    print(dict(counts))
    assert not wrong
    assert counts["refused"] < DRAWN / 8
    assert counts["sampled"] > DRAWN / 2


def _cases(folder: Path) -> Iterable[tuple[str, dict[str, Any]]]:
    for path in sorted(folder.glob("*.json")):
        for case in json.loads(path.read_text(encoding="utf-8")):
            yield f"{path.stem}: {case['description']}", case


@pytest.mark.skipif(SUITE is None, reason="no folder of the official tests is named")
def test_the_official_suite(tokenizer: Tokenizer, vocabulary: LLTokenizer, short: set[int]) -> None:
    """What a grammar takes is valid, what it samples is valid, and what it does not know it refuses."""
    counts: Counter[str] = Counter()
    wrong = []
    folder = Path(SUITE or "")
    kind = DRAFTS[folder.name]
    for name, case in _cases(folder):
        schema = case["schema"]
        try:
            grammar = compiled(vocabulary, schema)
        except GrammarError as error:
            counts["refused"] += 1
            print(f"refused {name}: {str(error)[:100]}")
            continue
        counts["compiled"] += 1
        validator = kind(schema)
        for test in case["tests"]:
            matcher = grammar.start_matcher()
            ids = tokenizer.encode(json.dumps(test["data"], ensure_ascii=False))
            is_accepted = matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()
            counts[f"{'valid' if test['valid'] else 'invalid'} {'taken' if is_accepted else 'not taken'}"] += 1
            if is_accepted and not test["valid"]:
                wrong.append((name, test["data"], schema))
        for seed in range(4):
            answer = sampled(grammar, tokenizer, short, seed)
            if answer is not None:
                counts["sampled"] += 1
                if not validator.is_valid(json.loads(answer)):
                    wrong.append((name, answer, schema))
    print(dict(counts))
    assert not wrong
