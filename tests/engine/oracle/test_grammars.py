"""Greedy decoding under a grammar is what transformers' logits under llguidance's own masks give, however scheduled."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tests.engine.oracle.answer_cache import AnswerCache
from tests.engine.server.following import seen_tokens

from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.source import ModelSource
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.free_text import FreeText, Thought
from paternoster_engine.sampling.grammars.grammar import Grammar
from paternoster_engine.sampling.grammars.lazy import LazyMatcher
from paternoster_engine.sampling.grammars.source import GrammarSource, to_grammar
from paternoster_engine.sampling.grammars.vocabulary import Vocabulary
from paternoster_engine.server.parsers.formats import AnswerFormat

pytestmark = pytest.mark.timeout(900)

MAX_TOKENS = 24
TEXT = {"type": "string", "maxLength": 12}
WHOLE = {"type": "integer"}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


SCHEMAS: Sequence[Any] = (
    {},
    TEXT,
    WHOLE,
    {"type": "number"},
    {"type": "boolean"},
    {"type": "null"},
    {"type": "object"},
    {"type": ["string", "null"], "maxLength": 4},
    {"type": "integer", "minimum": 3, "maximum": 1999},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 1.5},
    {"type": "integer", "multipleOf": 7, "minimum": 10},
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"type": "string", "pattern": "^[A-Z][a-z]{2,6}$"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "format": "email"},
    {"enum": ["red", "green", 3, None, {"a": [1]}]},
    {"const": {"answer": "forty two"}},
    {"type": "array", "items": WHOLE, "minItems": 2, "maxItems": 3},
    {"type": "array", "prefixItems": [TEXT, WHOLE], "items": False, "minItems": 2},
    _object(name=TEXT, age=WHOLE),
    _object(a=_object(b=_object(c={"type": "boolean"}))),
    {"type": "object", "properties": {"x": WHOLE, "y": TEXT}},
    {"type": "object", "additionalProperties": WHOLE, "minProperties": 1, "maxProperties": 2},
    {"type": "object", "patternProperties": {"^[ab]+$": WHOLE}, "additionalProperties": False},
    {"anyOf": [_object(cat=TEXT), _object(dog=WHOLE)]},
    {"allOf": [{"type": "integer", "minimum": 5}, {"maximum": 60}]},
    {"oneOf": [{"const": "left"}, {"const": "right"}]},
    {"$defs": {"n": _object(next={"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]})}, "$ref": "#/$defs/n"},
)
REGEXES = ("[0-9]{3}-[0-9]{4}", "(yes|no)", "[a-z]+( [a-z]+){2}", "a*b", "Wörter? 🚀+", r"\d+/\d+", "[^a-z]{6}", "x|")
CHOICES = (["one"], ["Paris", "Rome", "Par"], ["a\nb", 'say "hi"', "日本", "\\"], ["yes", "yes, please"])
LARK = (
    'start: "The " NOUN "."\nNOUN: /[a-z]{3,8}/',
    'start: sum\nsum: NUM | sum "+" NUM\nNUM: /[1-9][0-9]?/',
    'start: "(" start ")" | "x"',
    'start: "ab"{2,3} "!"',
    'start: %json {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}',
)
GBNF = ('root ::= "Q" [0-9]+ " " ("yes" | "no")', "root ::= item{2}\nitem ::= [a-c]+ [\\n]")
TAG = {
    "triggers": ["<f="],
    "structures": [{"begin": "<f=add>", "schema": _object(n=WHOLE), "end": "</f>"}],
}
SOURCES = (
    *(GrammarSource("json", json.dumps(schema)) for schema in SCHEMAS),
    *(GrammarSource("regex", regex) for regex in REGEXES),
    *(GrammarSource("choice", json.dumps(choices)) for choices in CHOICES),
    *(GrammarSource("grammar", text) for text in (*LARK, *GBNF)),
    GrammarSource("structural_tag", json.dumps(TAG)),
)


ENDS = ("<|im_end|>", "<|endoftext|>", "<reponame>")
"""Tokens of the model at which llama.cpp ends an answer, of which transformers has the first."""


@pytest.fixture(scope="module")
def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary.from_tokenizer(tokenizer)


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer, vocabulary: Vocabulary) -> list[Grammar]:
    shared = vocabulary.build_tokenizer(tokenizer.encode)
    return [Grammar(shared, to_grammar(source, frozenset())) for source in SOURCES]


@pytest.fixture(scope="module")
def beginnings(prompts: list[list[int]]) -> list[list[int]]:
    """Prompts for all grammars, each of one length."""
    text = [token for prompt in prompts for token in prompt]
    return [text[29 * i : 29 * i + 20] for i in range(len(SOURCES))]


@pytest.fixture(scope="module")
def reference(
    theirs: Callable[..., Any],
    few_layers: int,
    answer_cache: AnswerCache,
    source: ModelSource,
    beginnings: list[list[int]],
) -> list[list[int]]:
    def constrained(layers: int, texts: list[str], prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        # Neither our vocabulary nor our matcher has a part in it.
        from llguidance import LLMatcher
        from llguidance.hf import from_tokenizer
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(str(source.path.parent), gguf_file=source.path.name)
        shared = from_tokenizer(tokenizer)
        matchers = [LLMatcher(shared, text) for text in texts]
        ends = tokenizer.convert_tokens_to_ids(list(ENDS))
        assert tokenizer.eos_token_id in ends
        model, outputs = theirs(layers), [[] for _ in texts]  # type: ignore[var-annotated]
        step, past = torch.tensor(prompts), None
        with torch.inference_mode():
            for _ in range(max_tokens):
                result = model(step, past_key_values=past, use_cache=True)
                past, logits = result.past_key_values, result.logits[:, -1]
                chosen = []
                for i, matcher in enumerate(matchers):
                    if outputs[i] and outputs[i][-1] in ends:
                        chosen.append(0)
                        continue
                    bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
                    allowed = np.unpackbits(bits, bitorder="little")[: logits.shape[1]] == 1
                    allowed[ends] = allowed[tokenizer.eos_token_id]
                    token = int(logits[i].masked_fill(torch.from_numpy(~allowed), float("-inf")).argmax())
                    assert token in ends or matcher.consume_token(token)
                    outputs[i].append(token)
                    chosen.append(token)
                step = torch.tensor(chosen).unsqueeze(-1)
        return outputs

    texts = [to_grammar(source, frozenset()) for source in SOURCES]
    answers: list[list[int]] = answer_cache.answer(constrained, few_layers, texts, beginnings, MAX_TOKENS)
    return answers


def _requests(
    tokenizer: Tokenizer, grammars: list[Grammar], prompts: list[list[int]], **params: float
) -> list[Request]:
    return [
        Request(
            RequestSpec(
                f"r{i}",
                list(prompt),
                SamplingParams(**{"max_tokens": MAX_TOKENS, "temperature": 0.0, **params}),
                eos_token_ids=tokenizer.eos_token_ids,
                seed=i,
            ),
            matcher=grammar.begin_output(),
        )
        for i, (grammar, prompt) in enumerate(zip(grammars, prompts, strict=True))
    ]


@pytest.mark.parametrize(
    ("settings", "first", "step"),
    [
        ({"max_num_seqs": 64}, 0, 1),
        ({"force_preempt_every": 3}, 0, 1),
        ({"prefix_cache": True, "max_num_seqs": 8, "speculative": "ngram"}, 0, 1),
        ({"overlap": True}, 0, 3),
        ({"force_preempt_every": 3, "speculative": "grammar"}, 0, 3),
        ({"force_preempt_every": 3, "speculative": "draft"}, 2, 6),
        ({"force_preempt_every": 3, "preemption": "swap", "host_blocks": 64}, 1, 3),
        ({"max_batched_tokens": 16, "max_num_seqs": 16}, 2, 3),
        ({"overlap": True, "speculative": "grammar"}, 1, 3),
    ],
    ids=str,
)
def test_greedy_is_the_masked_reference(
    settings: dict[str, Any],
    first: int,
    step: int,
    engine_with_all_tokens: Any,
    tokenizer: Tokenizer,
    grammars: list[Grammar],
    beginnings: list[list[int]],
    reference: list[list[int]],
) -> None:
    """All grammars under the first three, and of each kind of grammar some under every other schedule.

    A scheduler sees of a grammar that there is one: what a third of them shows of a schedule, all would.
    """
    scheduler = engine_with_all_tokens.scheduler(**settings)
    for _ in range(2 if settings.get("prefix_cache") else 1):
        requests = _requests(tokenizer, grammars, beginnings)[first::step]
        engine_with_all_tokens.play(scheduler, requests)
        assert [request.output for request in requests] == reference[first::step]
    assert scheduler.counters.preemptions > 0 or "force_preempt_every" not in settings
    accepted = scheduler.counters.accepted_tokens
    assert accepted["draft"] > 0 or settings.get("speculative") != "draft"
    # What a grammar forces goes in as one chunk.
    assert accepted["grammar"] > 0 or "speculative" not in settings
    for request in requests:
        ended = request.output[-1] in tokenizer.eos_token_ids
        assert request.finish_reason is (FinishReason.STOP if ended else FinishReason.LENGTH)
        assert ended or len(request.output) == MAX_TOKENS


def test_most_of_what_is_asked_for_is_complete(reference: list[list[int]], tokenizer: Tokenizer) -> None:
    assert sum(output[-1] in tokenizer.eos_token_ids for output in reference) > len(reference) / 2


FREE_TEXTS = {
    "thought": FreeText(Thought("<think>", ",", begun=True)),
    "calls": FreeText(call=",", several=True),
}
"""A comma ends the thought, or begins a call, behind which text is free again."""
RESTING = slice(17, 30)
"""Grammars that are held behind free text."""


@pytest.fixture(scope="module")
def resting(
    engine_with_all_tokens: Any, tokenizer: Tokenizer, grammars: list[Grammar], beginnings: list[list[int]]
) -> Callable[[str], tuple[Callable[[], list[Request]], list[list[int]]]]:
    """Requests whose grammars rest, and their outputs without any setting, by the name of a free text."""
    seen = seen_tokens(tokenizer, AnswerFormat())

    @cache
    def of(name: str) -> tuple[Callable[[], list[Request]], list[list[int]]]:
        def requests() -> list[Request]:
            made = _requests(tokenizer, grammars[RESTING], beginnings[RESTING], max_tokens=36)
            for each, grammar in zip(made, grammars[RESTING], strict=True):
                each.matcher = LazyMatcher(grammar, FREE_TEXTS[name], seen)
            return made

        plain = requests()
        engine_with_all_tokens.play(engine_with_all_tokens.scheduler(), plain)
        assert sum("," in tokenizer.decode(each.output) for each in plain) > len(plain) / 2, "else nothing was held"
        return requests, [each.output for each in plain]

    return of


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("thought", {"speculative": "grammar"}),
        ("calls", {"speculative": "grammar"}),
        ("calls", {"force_preempt_every": 3}),
        ("calls", {"force_preempt_every": 4, "speculative": "ngram"}),
        ("thought", {"force_preempt_every": 3, "preemption": "swap", "host_blocks": 64}),
        ("thought", {"overlap": True}),
    ],
    ids=str,
)
def test_beside_free_text_any_schedule_gives_the_same(
    name: str,
    settings: dict[str, Any],
    engine_with_all_tokens: Any,
    resting: Callable[[str], tuple[Callable[[], list[Request]], list[list[int]]]],
) -> None:
    """What a grammar forces is of either free text; of what a schedule does to a matcher, either shows as much."""
    make, plain = resting(name)
    requests, scheduler = make(), engine_with_all_tokens.scheduler(**settings)
    engine_with_all_tokens.play(scheduler, requests)
    assert [request.output for request in requests] == plain
    accepted = scheduler.counters.accepted_tokens
    assert accepted["grammar"] > 0 or "speculative" not in settings
    assert accepted["lookup"] > 0 or settings.get("speculative") != "ngram"


SAMPLED = {
    "temperature": 0.9, "top_p": 0.9, "top_k": 40, "min_p": 0.001,
    "frequency_penalty": 0.5, "presence_penalty": 0.2, "repetition_penalty": 1.1,
}  # fmt: skip


def test_beside_requests_without_a_grammar(
    engine_with_all_tokens: Any,
    tokenizer: Tokenizer,
    grammars: list[Grammar],
    beginnings: list[list[int]],
    reference: list[list[int]],
) -> None:
    """Neither kind changes the other; sampled ones are as they are alone, in any batch and four of a kind."""
    free = _requests(tokenizer, grammars, beginnings)[:3]
    for request in free:
        request.spec, request.matcher = replace(request.spec, request_id=f"free-{request.request_id}"), None
    alone = [
        Request(RequestSpec(r.request_id, r.prompt, r.params, eos_token_ids=r.eos_token_ids, seed=r.seed)) for r in free
    ]
    for request in alone:
        engine_with_all_tokens.play(engine_with_all_tokens.scheduler(), [request])
    bound = _requests(tokenizer, grammars, beginnings)
    sampled = [_requests(tokenizer, grammars, beginnings, **SAMPLED)[i] for i in (5, 20, 33, 46) for _ in range(4)]
    for i, request in enumerate(sampled):
        request.spec = replace(request.spec, request_id=f"s{i}", seed=i)
        request.prefix_donor = sampled[i - i % 4] if i % 4 else None
    engine_with_all_tokens.play(engine_with_all_tokens.scheduler(prefix_cache=True), [*free, *bound, *sampled])
    assert [request.output for request in free] == [request.output for request in alone]
    assert [request.output for request in bound] == reference
    again = [_requests(tokenizer, grammars, beginnings, **SAMPLED)[i] for i in (5, 20, 33, 46) for _ in range(4)]
    for i, request in enumerate(again):
        request.spec = replace(request.spec, request_id=f"s{i}", seed=i)
    # One of each kind alone, the others in a batch of their own kind.
    for batch in (*([request] for request in again[::4]), [request for i, request in enumerate(again) if i % 4]):
        engine_with_all_tokens.play(engine_with_all_tokens.scheduler(force_preempt_every=2), batch)
    assert [request.output for request in again] == [request.output for request in sampled]
