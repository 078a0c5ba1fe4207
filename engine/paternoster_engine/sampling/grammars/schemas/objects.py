"""Keywords of objects, rewritten as those that llguidance enforces."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.schemas.formats import ALIASES, FORMATS, OF_ANY_TEXT
from paternoster_engine.sampling.grammars.schemas.keywords import ANNOTATIONS, IN_PLACE, REFERENCES
from paternoster_engine.sampling.grammars.schemas.part import SchemaPart
from paternoster_engine.sampling.grammars.schemas.patterns import UnsupportedPattern, without_look_around
from paternoster_engine.sampling.grammars.schemas.rewriting import Rewriting

MOST_NAMES = 200
"""Most names of ``propertyNames`` that become properties."""
MOST_CHARACTERS = 2**16
"""Most characters of the schemas of these properties, each a copy of the one that they share."""
MAX_DEPTH = 16
"""Deepest nesting of applied schemas that is searched for evaluated properties."""


def rewrite_property_names(part: SchemaPart, value: Any) -> None:
    """Rewrite ``propertyNames`` as ``properties`` or ``patternProperties``."""
    names_schema = part.rewriting.references.follow_reference(value)
    if names_schema is False:
        part.conjuncts.append({"maxProperties": 0})
        return
    if not isinstance(names_schema, Mapping):
        return
    names_schema = {key: of_key for key, of_key in names_schema.items() if key not in ANNOTATIONS and key != "type"}
    if names_schema.get("format") in OF_ANY_TEXT:
        del names_schema["format"]
    if not names_schema:
        return
    if names_schema.keys() == {"pattern", "format"}:
        # llguidance takes one expression for a name, and a format is only an annotation.
        del names_schema["format"]
        part.report_unenforced("propertyNames", asserts=False)
    if part.schema.get("patternProperties") or not _restrict_names(part, names_schema):
        part.report_unenforced("propertyNames")


def _restrict_names(part: SchemaPart, names_schema: Mapping[str, Any]) -> bool:
    """Restrict names to ``names_schema``; False where no keyword of llguidance does."""
    values = [names_schema["const"]] if "const" in names_schema else names_schema.get("enum")
    other = part.rewrite_within(part.schema.get("additionalProperties", True), "additionalProperties")
    given = part.schema.get("properties", {})
    if isinstance(values, list) and len(names_schema) == 1 and isinstance(given, Mapping):
        if len(values) > MOST_NAMES or len(values) * len(json.dumps(other)) > MOST_CHARACTERS:
            return False
        allowed = [value for value in values if isinstance(value, str)]
        properties = {name: part.rewrite_within(schema, "properties", name) for name, schema in given.items()}
        properties = {name: schema if name in allowed else False for name, schema in properties.items()}
        part.replaced |= {"properties": dict.fromkeys(allowed, other) | properties, "additionalProperties": False}
        return True
    pattern = _pattern_of(names_schema)
    if pattern is None or given or other is False:
        return False
    part.replaced |= {"patternProperties": {pattern: other}, "additionalProperties": False}
    return True


def _pattern_of(names_schema: Mapping[str, Any]) -> str | None:
    """Return one expression for all names that ``names_schema`` allows; None where no single one does."""
    if names_schema.keys() == {"pattern"} and isinstance(names_schema["pattern"], str):
        try:
            options = without_look_around(names_schema["pattern"])
        except UnsupportedPattern:
            return None
        return options[0][0] if len(options) == len(options[0]) == 1 else None
    if names_schema.keys() == {"format"}:
        value = names_schema["format"]
        name = ALIASES.get(value, value) if isinstance(value, str) else ""
        return f"^(?:{FORMATS[name]})$" if name in FORMATS else None
    least, most = names_schema.get("minLength", 0), names_schema.get("maxLength", "")
    if names_schema.keys() <= {"minLength", "maxLength"} and all(
        isinstance(count, int) for count in (least, most or 0)
    ):
        return f"^(?s:.{{{least},{most}}})$"
    return None


def rewrite_dependent_required(part: SchemaPart, value: Any) -> None:
    """Rewrite ``dependentRequired``."""
    _rewrite_dependency(part, "dependentRequired", value, {})


def rewrite_dependent_schemas(part: SchemaPart, value: Any) -> None:
    """Rewrite ``dependentSchemas``."""
    _rewrite_dependency(part, "dependentSchemas", {}, value)


def rewrite_dependencies(part: SchemaPart, value: Any) -> None:
    """Rewrite ``dependencies``, which earlier drafts have in place of both."""
    if isinstance(value, Mapping):
        lists = {name: needed for name, needed in value.items() if isinstance(needed, list)}
        _rewrite_dependency(
            part, "dependencies", lists, {name: inner for name, inner in value.items() if name not in lists}
        )


def _rewrite_dependency(part: SchemaPart, key: str, required: Any, schemas: Any) -> None:
    """Require properties, and a schema of the object, where another property is present: as two alternatives."""
    if not isinstance(required, Mapping) or not isinstance(schemas, Mapping):
        part.report_unenforced(key)
        return
    for name in {**required, **schemas}:
        needed, inner = required.get(name, []), schemas.get(name, True)
        if (not needed and inner is True) or part.made.get("properties", {}).get(name) is False:
            continue
        if not isinstance(needed, list) or not part.rewriting.may_split():
            part.report_unenforced(key)
            return
        there: dict[str, Any] = {"required": [name, *needed]}
        if inner is not True:
            there["allOf"] = [part.rewrite_within(inner, key, name)]
        part.conjuncts.append({"anyOf": [{"properties": {name: False}}, there]})


def rewrite_unevaluated_properties(part: SchemaPart, value: Any) -> None:
    """Rewrite ``unevaluatedProperties`` as ``additionalProperties`` beside the names of all applied schemas."""
    if value is True or value == {}:
        return
    evaluated = Evaluated(part.rewriting, "unevaluatedProperties")
    evaluated.add(part.schema, MAX_DEPTH, certain=True)
    if not evaluated.certain:
        part.report_unenforced("unevaluatedProperties")
    if evaluated.all:
        return
    properties = dict.fromkeys(evaluated.names, True)
    part.conjuncts.append(
        {
            "properties": properties,
            **({"patternProperties": dict.fromkeys(evaluated.patterns, True)} if evaluated.patterns else {}),
            "additionalProperties": part.rewrite_within(value, "unevaluatedProperties"),
        }
    )


class Evaluated:
    """The properties that schemas evaluate, found without a value."""

    def __init__(self, rewriting: Rewriting, keyword: str) -> None:
        """``keyword``: on whose behalf the schemas are searched."""
        self._rewriting, self._keyword = rewriting, keyword
        self.names: dict[str, None] = {}
        self.patterns: dict[str, None] = {}
        self.all = False
        self.certain = True
        """Whether the schemas are applied to every value."""
        self.required: dict[str, None] = {}
        """Names that an object must have, or must have beside others."""
        self.least = 0
        """The largest ``minProperties``."""
        self.options = 1
        """Schemas of ``anyOf`` and ``oneOf``, and 1."""
        self.restricted = False
        """Whether names or whole objects are restricted otherwise."""

    def add(self, schema: Any, depth: int, *, certain: bool) -> None:
        if not isinstance(schema, Mapping):
            return
        if depth == 0 or (depth < MAX_DEPTH and not self._rewriting.may_visit(self._keyword)):
            self.all, self.certain = True, False
            return
        properties, patterns = schema.get("properties"), schema.get("patternProperties")
        found = [*properties] if isinstance(properties, Mapping) else []
        self.names |= dict.fromkeys(found)
        self.patterns |= dict.fromkeys(patterns) if isinstance(patterns, Mapping) else {}
        if not certain and (found or patterns):
            self.certain = False
        inner = schema.get("unevaluatedProperties") if depth != MAX_DEPTH else None
        self.all |= "additionalProperties" in schema or (inner is not None and inner is not False)
        self._add_demands(schema)
        for key, inner_schema, applies in _iterate_applied(schema):
            target = self._rewriting.references.find_target(inner_schema) if key in REFERENCES else inner_schema
            self.add(target, depth - 1, certain=certain and applies)

    def _add_demands(self, schema: Mapping[str, Any]) -> None:
        """Add what ``schema`` demands of names besides its properties."""
        dependent = [schema.get(key) for key in ("dependentRequired", "dependencies")]
        lists = [
            schema.get("required"),
            *(names for one in dependent if isinstance(one, Mapping) for names in one.values()),
        ]
        self.required |= {
            name: None for names in lists if isinstance(names, list) for name in names if isinstance(name, str)
        }
        least = schema.get("minProperties")
        self.least = max(self.least, least if isinstance(least, int) else 0)
        self.options += sum(len(schema[key]) for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list))
        values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema.get("const")]
        self.restricted |= "propertyNames" in schema or any(isinstance(value, Mapping) for value in values)


def _iterate_applied(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Yield each keyword with a schema of the same value, the schema, and whether it applies to every value."""
    for key in IN_PLACE:
        if key not in schema:
            continue
        value, applies = schema[key], key in ("allOf", *REFERENCES)
        by_name = key in _BY_NAME and isinstance(value, Mapping)
        parts = value if isinstance(value, list) else [*value.values()] if by_name else [value]
        for part in parts:
            yield key, part, applies


_BY_NAME = ("dependentSchemas", "dependencies")


def uncountable_keywords(made: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keywords of counts that llguidance does not enforce where some properties are optional."""
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


HANDLERS: Mapping[str, Callable[[SchemaPart, Any], None]] = {
    "propertyNames": rewrite_property_names,
    "dependentRequired": rewrite_dependent_required,
    "dependentSchemas": rewrite_dependent_schemas,
    "dependencies": rewrite_dependencies,
    "unevaluatedProperties": rewrite_unevaluated_properties,
}
