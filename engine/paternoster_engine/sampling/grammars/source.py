"""What an answer must be, as clients say it, made into a grammar of llguidance."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from llguidance import LLMatcher, StructTag
from llguidance.gbnf_to_lark import any_to_lark

from paternoster_engine.sampling.grammars.json_schema import COMPACT_OPTIONS, COMPILE_OPTIONS, with_options
from paternoster_engine.sampling.grammars.limits import ITEMS_OF_SCHEMAS, MAX_ITEMS
from paternoster_engine.sampling.grammars.schemas.enforceable import Enforceable, make_enforceable
from paternoster_engine.sampling.grammars.schemas.rewriting import CompileFailure, Unenforced

JSON_MARK = "%json "
Kind = Literal["json", "regex", "choice", "grammar", "structural_tag", "lark"]
KINDS_OF_JSON: frozenset[Kind] = frozenset({"json", "structural_tag", "lark"})
"""Kinds of grammar whose numbers are of JSON, the last one with calls that the engine describes."""


class GrammarSource(NamedTuple):
    """One of the ways to say what is allowed; equal ones have the same meaning."""

    kind: Kind
    text: str
    """A JSON schema, a regular expression, a JSON list of texts, Lark or GBNF, a structural tag, or Lark."""
    outline: str = ""
    """Lark of the whole answer, in which ``@answer`` stands for ``text``; empty if ``text`` is the whole answer."""
    compact: bool = False
    """Whether JSON has no white space between its tokens."""


class TranslatedGrammar(NamedTuple):
    """A grammar of llguidance, and the keywords of its schemas that it does not enforce."""

    text: str
    unenforced: tuple[Unenforced, ...] = ()
    split: bool = False
    """Whether conditions of a schema became alternatives."""


def most_items(source: GrammarSource) -> int:
    """How many ways to go on there may be at one place of it."""
    return MAX_ITEMS if source.kind == "grammar" else ITEMS_OF_SCHEMAS


def to_grammar(source: GrammarSource, specials: frozenset[str]) -> str:
    """Return the text of :func:`translate_source`."""
    return translate_source(source, specials).text


def translate_source(
    source: GrammarSource, specials: frozenset[str], failure: CompileFailure | None = None
) -> TranslatedGrammar:
    """Translate ``source`` into a grammar that is not compiled yet. Raises ``ValueError``.

    ``specials``: names of the vocabulary's control tokens. ``failure``: how to rewrite the schemas after a first
    grammar has failed to compile.
    """
    made = _TRANSLATIONS[source.kind](source, specials, failure)
    if not source.outline:
        return made
    parts = json.loads(made.text)["grammars"] if made.text.lstrip().startswith("{") else [{"lark_grammar": made.text}]
    outline = _translate_lark(source._replace(text=source.outline), specials, failure)
    text = json.dumps({"grammars": [{"lark_grammar": outline.text}, parts[0] | {"name": "answer"}, *parts[1:]]})
    return TranslatedGrammar(text, (*made.unenforced, *outline.unenforced), made.split or outline.split)


def _translate_json(source: GrammarSource, _: frozenset[str], failure: CompileFailure | None) -> TranslatedGrammar:
    made = make_enforceable(json.loads(source.text), failure)
    text = json.dumps(made.schema, allow_nan=False)
    options = COMPACT_OPTIONS if source.compact else COMPILE_OPTIONS
    return TranslatedGrammar(LLMatcher.grammar_from_json_schema(text, overrides=options), made.unenforced, made.split)


def _translate_lark(source: GrammarSource, _: frozenset[str], failure: CompileFailure | None) -> TranslatedGrammar:
    """Return our own Lark, whose schemas are rewritten already, or rewrite these again after a failure."""
    if failure is None and not source.compact:
        return TranslatedGrammar(source.text)
    lines, unenforced = [], []
    for line in source.text.split("\n"):
        before, separator, after = line.partition(JSON_MARK)
        if separator:
            schema, end = json.JSONDecoder().raw_decode(after)
            made = Enforceable(schema) if failure is None else make_enforceable(schema, failure)
            rule = before.partition(":")[0].strip()
            unenforced += [keyword._replace(path=(rule, *keyword.path)) for keyword in made.unenforced]
            line = f"{before}{separator}{json.dumps(with_options(made.schema, compact=source.compact))}{after[end:]}"
        lines.append(line)
    return TranslatedGrammar("\n".join(lines), tuple(unenforced))


def _translate_regex(source: GrammarSource, _: frozenset[str], __: CompileFailure | None) -> TranslatedGrammar:
    return TranslatedGrammar(LLMatcher.grammar_from_regex(source.text))


def _translate_choice(source: GrammarSource, _: frozenset[str], __: CompileFailure | None) -> TranslatedGrammar:
    # One lexeme: alternatives of a rule would each be an item of the parser.
    choices = " | ".join(json.dumps(choice) for choice in json.loads(source.text))
    return TranslatedGrammar(f"start: CHOICE\nCHOICE: {choices}")


def _translate_grammar(source: GrammarSource, _: frozenset[str], __: CompileFailure | None) -> TranslatedGrammar:
    try:
        return TranslatedGrammar(any_to_lark(source.text))
    except RecursionError:
        raise
    except Exception as error:
        raise ValueError(f"neither Lark nor GBNF: {error}") from error


def _translate_structural_tag(
    source: GrammarSource, specials: frozenset[str], failure: CompileFailure | None
) -> TranslatedGrammar:
    structure_tag: Mapping[str, Any] = json.loads(source.text)
    tags, unenforced, split = [], [], False
    for i, structure in enumerate(structure_tag["structures"]):
        begin = structure["begin"]
        trigger = next((trigger for trigger in structure_tag["triggers"] if begin.startswith(trigger)), None)
        if trigger is None:
            raise ValueError(f"begin {begin!r} starts with none of the triggers {structure_tag['triggers']!r}")
        made = make_enforceable(structure["schema"], failure)
        path = ("structures", str(i), "schema")
        unenforced += [keyword._replace(path=(*path, *keyword.path)) for keyword in made.unenforced]
        split |= made.split
        schema = with_options(made.schema, compact=source.compact)
        tags.append(StructTag(trigger=trigger, begin=begin, grammar=schema, end=structure["end"]))
    special = {tag.trigger for tag in tags} <= specials
    return TranslatedGrammar(StructTag.to_grammar(tags, assume_special=special), tuple(unenforced), split)


_TRANSLATIONS: Mapping[Kind, Callable[[GrammarSource, frozenset[str], CompileFailure | None], TranslatedGrammar]] = {
    "json": _translate_json,
    "regex": _translate_regex,
    "choice": _translate_choice,
    "grammar": _translate_grammar,
    "structural_tag": _translate_structural_tag,
    "lark": _translate_lark,
}
