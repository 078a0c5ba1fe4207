"""Compile a client's grammar: at first as it is, and again without the keywords at which llguidance failed."""

import json
import re
from collections.abc import Mapping
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.grammar import Grammar, shorten_reason
from paternoster_engine.sampling.grammars.json_schema import COMPILE_OPTIONS
from paternoster_engine.sampling.grammars.limits import MAX_PARSER_COST
from paternoster_engine.sampling.grammars.parser_cost import ParserCost
from paternoster_engine.sampling.grammars.schemas.keywords import NUMBERS
from paternoster_engine.sampling.grammars.schemas.rewriting import CompileFailure
from paternoster_engine.sampling.grammars.source import GrammarSource, TranslatedGrammar, most_items, translate_source

KEYWORDS_OF_ERRORS: Mapping[str, tuple[str, ...]] = {
    "regex parse error": ("pattern",),
    "look-?arounds? ": ("pattern",),
    "backreferences": ("pattern",),
    "Unable to determine if regex": ("pattern",),
    "patternProperty regexes": ("patternProperties", "additionalProperties"),
    "min/maxProperties": ("minProperties", "maxProperties"),
    "Failed to generate regex": NUMBERS,
    "too many digits": ("multipleOf",),
    "circular references": (),
    "exceeds the supported range": ("minLength", "maxLength"),
}
"""Pattern of an error message of llguidance -> the keywords to leave out in the next attempt."""
CIRCULAR_REFERENCES = "circular references"
MAX_ATTEMPTS = 3


def compile_source(tokenizer: LLTokenizer, source: GrammarSource, specials: frozenset[str]) -> TranslatedGrammar:
    """Return a translation that compiles and allows an answer. Raises :class:`GrammarError`.

    Where llguidance fails to compile a schema, the next attempt compiles each keyword by itself and leaves out those
    that fail. Where the keywords compile one by one and not together, the last attempt leaves out all those that the
    error message is about.
    """
    failure: CompileFailure | None = None
    for attempt in range(MAX_ATTEMPTS):
        made = _translate_source(source, specials, failure)
        try:
            _compile_grammar(tokenizer, source, made)
        except GrammarError as error:
            text = str(error)
            found = [keywords for fault, keywords in KEYWORDS_OF_ERRORS.items() if re.search(fault, text)]
            written = source.kind in ("regex", "choice", "grammar") and not source.outline
            if written or attempt == MAX_ATTEMPTS - 1 or not (found or made.split):
                raise
            counts = {"minProperties", "maxProperties"}
            keywords = frozenset(key for keys in found for key in keys if failure is not None or key in counts)
            circular = CIRCULAR_REFERENCES in text
            if failure is not None:
                keywords, circular = keywords | failure.left_out, circular or failure.circular
            failure = CompileFailure(failure.compiles if failure is not None else _SchemaChecks(), keywords, circular)
            continue
        return made
    raise AssertionError("the last attempt returns or raises")


def _translate_source(
    source: GrammarSource, specials: frozenset[str], failure: CompileFailure | None = None
) -> TranslatedGrammar:
    try:
        return translate_source(source, specials, failure)
    except RecursionError:
        raise GrammarError("it is nested too deeply") from None
    except GrammarError:
        raise
    except ValueError as error:
        raise GrammarError(shorten_reason(str(error))) from error


def _compile_grammar(tokenizer: LLTokenizer, source: GrammarSource, made: TranslatedGrammar) -> None:
    try:
        work = ParserCost.estimate_items(made.text)
    except RecursionError:
        raise GrammarError("it is nested too deeply") from None
    except ValueError as error:
        raise GrammarError(shorten_reason(str(error))) from error
    if work > MAX_PARSER_COST:
        raise GrammarError(
            f"too many ways lead to the same rules: {work} items to look at for one token, of at most {MAX_PARSER_COST}"
        )
    Grammar(tokenizer, made.text, most_items(source)).check_masks()


class _SchemaChecks:
    """Whether llguidance compiles schemas; each is compiled once."""

    def __init__(self) -> None:
        self._found: dict[str, bool] = {}

    def __call__(self, schema: Mapping[str, Any]) -> bool:
        text = json.dumps(schema)
        if text not in self._found:
            fault = LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(text, overrides=COMPILE_OPTIONS))
            self._found[text] = not any(re.search(pattern, fault) for pattern in KEYWORDS_OF_ERRORS)
        return self._found[text]
