"""What an answer must be, as clients say it, made into a grammar of llguidance."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from llguidance import LLMatcher, StructTag
from llguidance.gbnf_to_lark import any_to_lark

from paternoster_engine.sampling.grammars.json_schema import OPTIONS, narrowed, with_options
from paternoster_engine.sampling.grammars.limits import ITEMS, ITEMS_OF_SCHEMAS

Kind = Literal["json", "regex", "choice", "grammar", "structural_tag", "lark"]


class GrammarSource(NamedTuple):
    """One of the ways to say what is allowed; equal ones have the same meaning."""

    kind: Kind
    text: str
    """A JSON schema, a regular expression, a JSON list of texts, Lark or GBNF, a structural tag, or Lark."""
    outline: str = ""
    """Lark of the whole answer, in which what ``text`` says is ``@answer``; empty: that is all."""


def most_items(source: GrammarSource) -> int:
    """How many ways to go on there may be at one place of it."""
    return ITEMS if source.kind == "grammar" else ITEMS_OF_SCHEMAS


def to_grammar(source: GrammarSource, specials: frozenset[str]) -> str:
    """The grammar, not yet checked; ``specials``: names of the vocabulary's control tokens. Raises ``ValueError``."""
    grammar = _TRANSLATIONS[source.kind](source.text, specials)
    if not source.outline:
        return grammar
    parts = json.loads(grammar)["grammars"] if grammar.lstrip().startswith("{") else [{"lark_grammar": grammar}]
    return json.dumps({"grammars": [{"lark_grammar": source.outline}, parts[0] | {"name": "answer"}, *parts[1:]]})


def _json(text: str, _: frozenset[str]) -> str:
    text = json.dumps(narrowed(json.loads(text)), allow_nan=False)
    return LLMatcher.grammar_from_json_schema(text, overrides=OPTIONS)


def _regex(text: str, _: frozenset[str]) -> str:
    return LLMatcher.grammar_from_regex(text)


def _choice(text: str, _: frozenset[str]) -> str:
    # One lexeme: alternatives of a rule would each be an item of the parser.
    return "start: CHOICE\nCHOICE: " + " | ".join(json.dumps(choice) for choice in json.loads(text))


def _grammar(text: str, _: frozenset[str]) -> str:
    try:
        return any_to_lark(text)
    except RecursionError:
        raise
    except Exception as error:
        raise ValueError(f"neither Lark nor GBNF: {error}") from error


def _structural_tag(text: str, specials: frozenset[str]) -> str:
    said: Mapping[str, Any] = json.loads(text)
    tags = []
    for structure in said["structures"]:
        begin = structure["begin"]
        trigger = next((trigger for trigger in said["triggers"] if begin.startswith(trigger)), None)
        if trigger is None:
            raise ValueError(f"begin {begin!r} starts with none of the triggers {said['triggers']!r}")
        tags.append(
            StructTag(trigger=trigger, begin=begin, grammar=with_options(structure["schema"]), end=structure["end"])
        )
    special = {tag.trigger for tag in tags} <= specials
    return StructTag.to_grammar(tags, assume_special=special)


_TRANSLATIONS: Mapping[Kind, Callable[[str, frozenset[str]], str]] = {
    "json": _json,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "structural_tag": _structural_tag,
    "lark": lambda text, _: text,
}
