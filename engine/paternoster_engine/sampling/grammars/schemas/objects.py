"""Keywords of objects, said by the ones that llguidance has."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.schemas.formats import ALIASES, FORMATS, OF_ANY_TEXT
from paternoster_engine.sampling.grammars.schemas.keywords import ANNOTATIONS, IN_PLACE
from paternoster_engine.sampling.grammars.schemas.part import Part
from paternoster_engine.sampling.grammars.schemas.patterns import Unsupported, without_look_around

MOST_NAMES = 200
"""Of ``propertyNames``, that become properties."""
MOST_CHARACTERS = 2**16
"""Of the schemas of all these, each a copy of the one that they share."""
MAX_DEPTH = 16
"""Schemas in one another whose properties ``unevaluatedProperties`` leaves out."""


def names(part: Part, value: Any) -> None:
    """``propertyNames``."""
    said = part.rewriting.references.followed(value)
    if said is False:
        part.conjuncts.append({"maxProperties": 0})
        return
    if not isinstance(said, Mapping):
        return
    said = {key: of_key for key, of_key in said.items() if key not in ANNOTATIONS and key != "type"}
    if said.get("format") in OF_ANY_TEXT:
        del said["format"]
    if not said:
        return
    if said.keys() == {"pattern", "format"}:
        # There is one expression a name, and a format is an annotation.
        del said["format"]
        part.tell("propertyNames", asserts=False)
    if part.said.get("patternProperties") or not _of_names(part, said):
        part.tell("propertyNames")


def _of_names(part: Part, said: Mapping[str, Any]) -> bool:
    """Whether names are held to ``said``."""
    values = [said["const"]] if "const" in said else said.get("enum")
    other = part.within(part.said.get("additionalProperties", True), "additionalProperties")
    given = part.said.get("properties", {})
    if isinstance(values, list) and len(said) == 1 and isinstance(given, Mapping):
        if len(values) > MOST_NAMES or len(values) * len(json.dumps(other)) > MOST_CHARACTERS:
            return False
        allowed = [value for value in values if isinstance(value, str)]
        properties = {name: part.within(schema, "properties", name) for name, schema in given.items()}
        properties = {name: schema if name in allowed else False for name, schema in properties.items()}
        part.replaced |= {"properties": dict.fromkeys(allowed, other) | properties, "additionalProperties": False}
        return True
    pattern = _pattern_of(said)
    if pattern is None or given or other is False:
        return False
    part.replaced |= {"patternProperties": {pattern: other}, "additionalProperties": False}
    return True


def _pattern_of(said: Mapping[str, Any]) -> str | None:
    """One expression of what a name may be; None where there is none that says it all."""
    if said.keys() == {"pattern"} and isinstance(said["pattern"], str):
        try:
            options = without_look_around(said["pattern"])
        except Unsupported:
            return None
        return options[0][0] if len(options) == len(options[0]) == 1 else None
    if said.keys() == {"format"}:
        name = ALIASES.get(said["format"], said["format"]) if isinstance(said["format"], str) else ""
        return f"^(?:{FORMATS[name]})$" if name in FORMATS else None
    least, most = said.get("minLength", 0), said.get("maxLength", "")
    if said.keys() <= {"minLength", "maxLength"} and all(isinstance(count, int) for count in (least, most or 0)):
        return f"^(?s:.{{{least},{most}}})$"
    return None


def required_with(part: Part, value: Any) -> None:
    """``dependentRequired``."""
    _depend(part, "dependentRequired", value, {})


def of_with(part: Part, value: Any) -> None:
    """``dependentSchemas``."""
    _depend(part, "dependentSchemas", {}, value)


def dependencies(part: Part, value: Any) -> None:
    """What earlier drafts have in place of both."""
    if isinstance(value, Mapping):
        lists = {name: needed for name, needed in value.items() if isinstance(needed, list)}
        _depend(part, "dependencies", lists, {name: said for name, said in value.items() if name not in lists})


def _depend(part: Part, key: str, required: Any, schemas: Any) -> None:
    """Where a property is there, others are, and the object is of a schema."""
    if not isinstance(required, Mapping) or not isinstance(schemas, Mapping):
        part.tell(key)
        return
    for name in {**required, **schemas}:
        needed, said = required.get(name, []), schemas.get(name, True)
        if (not needed and said is True) or part.made.get("properties", {}).get(name) is False:
            continue
        if not isinstance(needed, list) or not part.rewriting.may_split():
            part.tell(key)
            return
        there: dict[str, Any] = {"required": [name, *needed]}
        if said is not True:
            there["allOf"] = [part.within(said, key, name)]
        part.conjuncts.append({"anyOf": [{"properties": {name: False}}, there]})


def unevaluated(part: Part, value: Any) -> None:
    """``unevaluatedProperties``, as ``additionalProperties`` beside the names of all schemas that are applied."""
    if value is True or value == {}:
        return
    evaluated = _Evaluated(part)
    evaluated.add(part.said, MAX_DEPTH, certain=True)
    if not evaluated.certain:
        part.tell("unevaluatedProperties")
    if evaluated.all:
        return
    properties = dict.fromkeys(evaluated.names, True)
    part.conjuncts.append(
        {
            "properties": properties,
            **({"patternProperties": dict.fromkeys(evaluated.patterns, True)} if evaluated.patterns else {}),
            "additionalProperties": part.within(value, "unevaluatedProperties"),
        }
    )


class _Evaluated:
    """Which properties some schema has applied to, without looking at a value."""

    def __init__(self, part: Part) -> None:
        self._rewriting = part.rewriting
        self.names: dict[str, None] = {}
        self.patterns: dict[str, None] = {}
        self.all = False
        self.certain = True
        """Whether these are applied whatever the value is."""

    def add(self, said: Any, depth: int, *, certain: bool) -> None:
        if not isinstance(said, Mapping):
            return
        if depth == 0 or not self._rewriting.may_look():
            self.all, self.certain = True, False
            return
        properties, patterns = said.get("properties"), said.get("patternProperties")
        found = [*properties] if isinstance(properties, Mapping) else []
        self.names |= dict.fromkeys(found)
        self.patterns |= dict.fromkeys(patterns) if isinstance(patterns, Mapping) else {}
        if not certain and (found or patterns):
            self.certain = False
        inner = said.get("unevaluatedProperties") if depth != MAX_DEPTH else None
        self.all |= "additionalProperties" in said or (inner is not None and inner is not False)
        for key, schema, applies in _applied(said):
            target = self._rewriting.references.target(schema) if key == "$ref" else schema
            self.add(target, depth - 1, certain=certain and applies)


def _applied(said: Mapping[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Schemas that apply to the same value, and whether they always do."""
    for key in IN_PLACE:
        if key not in said:
            continue
        value, applies = said[key], key in ("allOf", "$ref")
        parts = value if isinstance(value, list) else [*value.values()] if key in _BY_NAME else [value]
        for schema in parts:
            yield key, schema, applies


_BY_NAME = ("dependentSchemas",)


def uncounted(made: Mapping[str, Any]) -> Iterator[str]:
    """Keywords that llguidance does not count by, as other properties may be left out."""
    properties, required = made.get("properties"), made.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return
    optional = [name for name, schema in properties.items() if schema is not False and name not in required]
    least, most = made.get("minProperties", 0), made.get("maxProperties")
    if not optional or not isinstance(least, int):
        return
    more = max(0, least - len(required))
    closed = made.get("additionalProperties", True) is False and not made.get("patternProperties")
    if closed and more <= 1 and (most is None or most - len(required) == 1):
        return
    if more:
        yield "minProperties"
    if most is not None:
        yield "maxProperties"


HANDLERS: Mapping[str, Callable[[Part, Any], None]] = {
    "propertyNames": names,
    "dependentRequired": required_with,
    "dependentSchemas": of_with,
    "dependencies": dependencies,
    "unevaluatedProperties": unevaluated,
}
