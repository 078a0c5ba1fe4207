"""Arguments that are written one after another, each with its name, in the order of the schema."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.limits import MAX_BYTES
from paternoster_engine.server.parsers.arguments.json_object import OF_OBJECTS, json_of
from paternoster_engine.server.parsers.arguments.plain_text import ANY, PlainTexts, exclude_marks, regex_terminal
from paternoster_engine.server.parsers.arguments.terms import SPACE, write_terms
from paternoster_engine.server.parsers.schemas import MOST_PARTS, ArgumentTypes, standing_alone

NAME = r"[^<>\s\x00-\x1f](?:[^<>\n]*[^<>\s\x00-\x1f])?"
"""Pattern of an argument's name between marks, around which there may be white space."""
_NOTHING = '""'
_OF_VALUES = (
    "enum", "const", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength",
    "maxLength", "pattern", "format", "items", "prefixItems", "additionalItems", "contains", "minItems", "maxItems",
    "uniqueItems", "properties", "required", "additionalProperties", "unevaluatedItems", *OF_OBJECTS,
)  # fmt: skip
_BEGINNINGS = {
    "null": "null|None", "boolean": "true|false|True|False", "integer": "-?[0-9]", "number": "-?[0-9]",
    "array": r"\[", "object": r"\{",
}  # fmt: skip


class _Member(NamedTuple):
    rule: str
    required: bool


class _Kinds(NamedTuple):
    """What values may be, of all arguments of a tool."""

    types: ArgumentTypes
    texts: PlainTexts


@dataclass(frozen=True, slots=True)
class NamedArguments:
    """How they are written; an object of this class is an ``Arguments``."""

    before: str
    """Before a value; ``%s`` is the argument's name."""
    after: str
    name: str
    """A regular expression of names that can be read."""
    between: bool = False
    """Whether a comma is between two."""
    marks: Sequence[str] = ()
    """What no text has within, as it would end it. None: texts are JSON as all other values are."""

    def __call__(self, rule: str, schema: Mapping[str, Any], special: Mapping[str, int]) -> Iterator[str]:
        """Raises :class:`GrammarError`, which names what of ``schema`` is not supported."""
        properties, required, others = _read_schema(schema)
        members, size, kinds = [], 0, _Kinds(ArgumentTypes(schema), PlainTexts(schema))
        for i, (name, value_schema) in enumerate(properties.items()):
            if value_schema is False and name not in required:
                continue
            if not re.fullmatch(self.name, name):
                raise GrammarError(f"the argument {name!r} has a name that this model's calls cannot have")
            members.append(_Member(f"{rule}_{i}", name in required))
            begin = " ".join(write_terms(self.before % name, special))
            for line in self._value_rules(members[-1].rule, begin, value_schema, schema, kinds, special):
                size += len(line)
                if size > MAX_BYTES:
                    raise GrammarError(f"the grammar of its arguments has more than {MAX_BYTES} bytes")
                yield line
        other = None
        if others is not False:
            other = f"{rule}_other"
            begin, terminal = self._other_name_rules(other, properties, special)
            yield from self._value_rules(other, begin, others, schema, kinds, special)
            yield terminal
        yield from (self._separated_members if self.between else _one_by_one)(rule, members, other)

    def _value_rules(
        self,
        rule: str,
        begin: str,
        value_schema: Any,
        root: Mapping[str, Any],
        kinds: _Kinds,
        special: Mapping[str, int],
    ) -> Iterator[str]:
        """``begin``, a value, and what ends it; ``kinds``: of ``root``."""
        types = kinds.types.types_of(value_schema)
        if kinds.types.over:
            raise GrammarError(f"its arguments have more than {MOST_PARTS} options")
        after = list(write_terms(self.after, special))
        if not self.marks or "string" not in types:
            yield " ".join([f"{rule}: {begin}", json_of(standing_alone(value_schema, root)), *after])
            return
        text, others = kinds.texts.grammar_of(value_schema), types - {"string"}
        if others and _is_free(value_schema):
            # However a text is read, it is of the schema; but marks within a list or an object do not end it.
            text, others = ANY, others & {"array", "object"}
        options = []
        if others:
            alone = standing_alone(value_schema, root)
            parts = alone.get("allOf", [])
            if not isinstance(parts, list):
                raise GrammarError(f"'allOf' is {parts!r:.60}: must be a list")
            alone["allOf"] = [*parts, {"type": sorted(others)}]
            options.append(" ".join([json_of(alone), *after]))
        if text is not None:
            terminal = f"{rule.upper()}_TEXT"
            # A text and the mark behind it are one lexeme: the lexer looks for the longest.
            joined = after[:1] if after[0].startswith('"') else []
            options.append(" ".join([terminal, *after[len(joined) :]]))
            # The reader takes a text that begins so for one of the others.
            begins = "|".join(dict.fromkeys(_BEGINNINGS[name] for name in sorted(others)))
            distinct = ["~" + regex_terminal(rf"[\s\x1c-\x1f]*(?:{begins})(?s:.*)")] if others else []
            expression = " & ".join([f"({text})", exclude_marks(self.marks, text), *distinct])
            yield " ".join([f"{terminal}: ({expression})", *joined])
        yield f"{rule}: {begin} ({' | '.join(options)})"

    def _other_name_rules(
        self, rule: str, properties: Mapping[str, Any], special: Mapping[str, int]
    ) -> tuple[str, str]:
        """What is before the value of an argument that is none of ``properties``, and the terminal that it needs.

        A name and the text around it are one lexeme, as those of ``properties`` are.
        """
        before, after = (list(write_terms(part, special)) for part in self.before.split("%s"))
        start, end = before[-1:] if before and before[-1][0] == '"' else [], after[:1] if after[0][0] == '"' else []
        terminal = f"{rule.upper()}_NAME"
        excluded = [f"~({' | '.join(map(json.dumps, properties))})"] if properties else []
        name = f"({' & '.join([regex_terminal(self.name), *excluded])})"
        begin = " ".join([*before[: len(before) - len(start)], terminal, *after[len(end) :]])
        return begin, " ".join([f"{terminal}:", *start, name, *end])

    @staticmethod
    def _separated_members(rule: str, members: Sequence[_Member], other: str | None) -> Iterator[str]:
        """``rule_first_i`` and ``rule_rest_i``: members from ``i`` on, where none is before them and where some is."""
        comma = f'"," {SPACE}'
        for i, member in enumerate(members):
            follows = f"{member.rule} {rule}_rest_{i + 1}"
            yield f"{rule}_first_{i}: {follows}" + ("" if member.required else f" | {rule}_first_{i + 1}")
            rest = f"{comma} {member.rule}"
            yield f"{rule}_rest_{i}: {rest if member.required else f'({rest})?'} {rule}_rest_{i + 1}"
        others = "" if other is None else f"({comma} {other})*"
        yield f"{rule}_rest_{len(members)}: {others or _NOTHING}"
        yield f"{rule}_first_{len(members)}: {f'({other} {others})?' if others else _NOTHING}"
        yield f"{rule}: {rule}_first_0"


def _one_by_one(rule: str, members: Sequence[_Member], other: str | None) -> Iterator[str]:
    all_of = [member.rule if member.required else f"{member.rule}?" for member in members]
    yield f"{rule}: " + (" ".join([*all_of, *([] if other is None else [f"{other}*"])]) or _NOTHING)


def _read_schema(schema: Mapping[str, Any]) -> tuple[dict[str, Any], set[str], Any]:
    """Schemas of the arguments, names of those that are required, and the schema of others, False where none may be.

    Others may be where the schema says what they are, or nothing of any argument.
    """
    for key in OF_OBJECTS:
        if key in schema:
            raise GrammarError(f"{key!r} of all arguments together is not supported for how this model writes calls")
    types = schema.get("type", "object")
    if types != "object" and "object" not in (types if isinstance(types, list) else ()):
        raise GrammarError(f"arguments must be an object, not {types!r}")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        raise GrammarError("'properties' must be an object, 'required' a list")
    others = schema.get("additionalProperties", not properties)
    for name in required:
        if not isinstance(name, str):
            raise GrammarError(f"'required' has {name!r:.60}: must be names of arguments")
        if name not in properties and schema.get("additionalProperties") is False:
            raise GrammarError(f"{name!r} is required and not allowed")
    missing = {name: others if others is not False else True for name in required if name not in properties}
    return {**properties, **missing}, set(required), others


def _is_free(value_schema: Any) -> bool:
    """Whether a value of its types may be any."""
    if not isinstance(value_schema, Mapping):
        return value_schema is not False
    options = value_schema.get("anyOf", [])
    return not any(key in value_schema for key in _OF_VALUES if key != "anyOf") and (
        isinstance(options, list) and all(map(_is_free, options))
    )
