"""Bodies from a route's own type: mostly what it describes, at and beyond its bounds, and anything at all."""

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from pydantic import BaseModel

TEXTS = st.text(st.characters(), max_size=20) | st.sampled_from(["", "\ud800", "\x00", "<|im_start|>", "{{ 1/0 }}"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
_EDGES = [0, -1, 1, 2**31, 2**53, 2**63, -(2**63) - 1, 10**30]


def bodies(model: type[BaseModel], /, **always: Any) -> st.SearchStrategy[bytes]:
    """JSON for ``model``; fields in ``always`` mostly have that value."""
    schema = model.model_json_schema()
    properties = schema["properties"]
    required = set(schema.get("required", ())) | set(always)

    described = {name: _values(each, schema.get("$defs", {})) for name, each in properties.items()}
    given = {name: described[name] if name not in always else st.just(always[name]) for name in required}
    fields = st.fixed_dictionaries(given, optional={name: described[name] for name in described.keys() - required})
    optional = sorted(set(properties) - required)
    optional_names = st.sets(st.sampled_from(optional), max_size=4) if optional else st.just(set())
    # Most have few fields, or one that is wrong would hide all others.
    few = st.builds(
        lambda body, names: {name: body[name] for name in body if name in required | names}, fields, optional_names
    )
    odd = st.builds(lambda body, name, value: {**body, name: value}, few, st.sampled_from(sorted(properties)), ANYTHING)
    unknown = st.builds(lambda body, name: {**body, name: 1}, few, TEXTS)
    return st.one_of(*[few] * 4, fields, odd, unknown, ANYTHING).map(lambda body: json.dumps(body).encode())


def _values(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values of one JSON schema, as pydantic writes them."""
    if "$ref" in schema:
        return st.deferred(lambda: _values(definitions[schema["$ref"].rpartition("/")[2]], definitions))
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return st.one_of([_values(each, definitions) for each in schema[choice]])
    if "const" in schema or "enum" in schema:
        return st.sampled_from([schema["const"]] if "const" in schema else schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        least = min(schema.get("minItems", 0), 3)
        return st.lists(_values(schema.get("items", {}), definitions), min_size=least, max_size=3)
    if kind == "object":
        needed = schema.get("required", [])
        fields = {name: _values(each, definitions) for name, each in schema.get("properties", {}).items()}
        return st.fixed_dictionaries(
            {name: each for name, each in fields.items() if name in needed},
            optional={name: each for name, each in fields.items() if name not in needed},
        )
    if kind in ("integer", "number"):
        return _numbers(schema)
    return {"string": TEXTS, "boolean": st.booleans(), "null": st.none()}.get(str(kind), ANYTHING)


def _numbers(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1000))
    high = schema.get("maximum", schema.get("exclusiveMaximum", max(low + 20, 1000)))
    edges = st.sampled_from([low, high, *(bound + step for bound in (low, high) for step in (-1, 1)), *_EDGES])
    if schema["type"] == "integer":
        return st.one_of(*[st.integers(low, min(high, low + 20))] * 6, edges)
    return st.one_of(*[st.floats(low, high)] * 6, st.floats(), edges)
