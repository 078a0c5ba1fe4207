"""Request bodies drawn from an OpenAPI document, right or nearly so, with one value as long as size or schema allow.

Drawn by a seed alone: a number of a run is the same body again. hypothesis-jsonschema and schemathesis draw values of a
few hundred bytes, and shrink them; here one value fills four megabytes, as text, without objects in Python.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
LONG_PLACEHOLDER = "@@long@@"
"""Stands for the long value until all else is written."""
DEEPEST = 8
"""Objects and arrays in one another that are drawn before the shortest value ends them."""
LETTERS = (
    "a", "a ", " ", "1", "\\n", '\\"', "\\\\", "\\u00e9", "\\u0000", "\\ud83d\\ude00", "é", "日", "[", "{",
    "[{", "<|im_end|>", "a.", "{{", "{% if a %}", '{\\"a\\":[1]}', "(a+)+", "\\ud83d",
)  # fmt: skip
"""What long texts repeat, as JSON writes it; the last is half a character, which no request may have."""
VALUES = ("{}", "[]", "0", "1", "null", "true", '""', '"a"', "1e5", "-1.5", "[[]]", "[1]", '{"a":1}', '{"type":"text"}',
          '{"type":"text","text":"a"}', '{"type":"x"}', '{"role":"user","content":"a"}', '{"":{}}')  # fmt: skip
"""What long arrays and objects repeat, besides what the schema has in the place."""
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Mostly one token, so that more bodies are read in the time."""
VALID_SHARE = 0.6
"""Share of bodies that the schema allows whole, so that the engine reads them to the end and computes."""
REPEATS = (1, 1, 1, 1, 20, 128, 2000)
"""How many items an array has whose items have the long value."""


_LIMITS = {"text": "maxLength", "array": "maxItems", "names": "maxProperties"}
"""The schema's bound of each kind of long value."""
_BY_TYPE = {"string": "text", "array": "array", "object": "names", "integer": "number", "number": "fraction"}


@dataclass(frozen=True, slots=True)
class GeneratedBody:
    """``text`` with places for one long value, which ``name`` describes."""

    name: str
    path: str
    text: str
    kind: str
    item: str
    most: int | None = None
    """The most items, names or characters of the long value; None for what fits."""
    valid: bool = False
    """Whether the schema allows it."""

    def of_size(self, size: int) -> bytes:
        """The body in about ``size`` bytes; more only where its places have no 64 bytes each."""
        places = self.text.count(LONG_PLACEHOLDER)
        room = max(0, (size - len(self.text.encode()) + places * len(LONG_PLACEHOLDER)) // places)
        if self.most is not None:
            per_item = {"text": 1, "array": len(self.item.encode()) + 1, "names": len(self.item.encode()) + 11}
            room = min(room, 2 + self.most * per_item[self.kind])
        return self.text.replace(LONG_PLACEHOLDER, _long(self.kind, self.item, room)).encode()


def _long(kind: str, item: str, room: int) -> str:
    """JSON in at most ``room`` bytes."""
    length = len(item.encode())
    if kind == "text":
        return f'"{item * max(1, (room - 2) // length)}"'
    if kind == "number":
        return "1" * max(1, room)
    if kind == "fraction":
        return "0." + "1" * max(1, room - 2)
    if kind == "spaces":
        return " " * max(0, room - 2) + "{}"
    if kind == "array":
        return "[" + ",".join([item] * ((room - 1) // (length + 1))) + "]"
    if kind == "same names":
        return "{" + ",".join([f'"a":{item}'] * ((room - 1) // (length + 5))) + "}"
    if kind == "names":
        count = max(0, room - 1) // (length + 11)
        return "{" + ",".join(f'"a{number:06}":{item}' for number in range(min(count, 999_999))) + "}"
    depth = int(item)
    nest = "[" * depth + "]" * depth if kind == "deep arrays" else '{"a":' * depth + "1" + "}" * depth
    return "[" + ",".join([nest] * max(0, (room - 1) // (len(nest) + 1))) + "]"


class Generator:
    """Draws bodies for the routes of one OpenAPI document."""

    def __init__(
        self,
        document: Mapping[str, Any],
        models: Mapping[str, str],
        bases: Mapping[str, Sequence[Mapping[str, object]]] | None = None,
    ) -> None:
        """``models``: the model to name by path; routes that are not among them are left out.

        ``bases``: by path, the short fields of requests that are answered, of which a valid body has one set: the
        schemas do not have the rules between fields.
        """
        self._schemas: Mapping[str, Schema] = document["components"]["schemas"]
        self._models = models
        self._bases = bases or {}
        self._routes: dict[str, Schema] = {
            path: operations["post"]["requestBody"]["content"]["application/json"]["schema"]
            for path, operations in document["paths"].items()
            if "requestBody" in operations.get("post", {}) and path in models
        }

    @property
    def paths(self) -> list[str]:
        return sorted(self._routes)

    def body(self, seed: str) -> GeneratedBody:
        """The body of this seed."""
        draw = _Draw(random.Random(seed), self._schemas)
        path = draw.random.choice(self.paths)
        value, place = draw.root(self._routes[path], self._models[path])
        bases = self._bases.get(path, ())
        if draw.valid and bases and isinstance(value, dict):
            base = next((each for each in bases if place.steps[0] in each), draw.random.choice(bases))
            value |= {name: short for name, short in base.items() if name != place.steps[0]}
        kind, item = draw.long(place.schema)
        most = place.schema.get(_LIMITS.get(kind, "")) if draw.valid else None
        name = f"{'.'.join(place.steps) or 'the body'}: {kind} of {item[:40]}"
        return GeneratedBody(
            name,
            path,
            json.dumps(value).replace(f'"{LONG_PLACEHOLDER}"', LONG_PLACEHOLDER),
            kind,
            item,
            most,
            draw.valid,
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the long value is, and what the schema has there."""

    steps: tuple[str, ...]
    schema: Schema


def _holds_long(place: _Place) -> bool:
    """Whether a long value is allowed there."""
    schema = place.schema
    fixed = "enum" in schema or "const" in schema or "properties" in schema or place.steps[-1] == "model"
    return not fixed and schema.get("type") in ("string", "array", "object")


class _Draw:
    def __init__(self, source: random.Random, schemas: Mapping[str, Schema]) -> None:
        self.random = source
        self._schemas = schemas
        self.valid = source.random() < VALID_SHARE
        self._places = 1
        """How often the mark is in the body."""

    def root(self, schema: Schema, model: str) -> tuple[object, _Place]:
        """A body that names ``model`` and has the mark in some place; an invalid one may be wrong elsewhere, too."""
        schema = self._resolved(schema)
        if not self.valid and self.random.random() < 0.02:
            return LONG_PLACEHOLDER, _Place((), schema)
        value, place = self._with_mark(schema, (), 0)
        while self.valid and not _holds_long(place):
            self._places = 1
            value, place = self._with_mark(schema, (), 0)
        if isinstance(value, dict):
            if place.steps[:1] != ("model",):
                value["model"] = model
            for name in LIMITS:
                if name in schema.get("properties", {}) and place.steps[:1] != (name,) and self.random.random() < 0.95:
                    value[name] = 1
            if not self.valid and self.random.random() < 0.05:
                value[self.random.choice([*value, "unknown"])] = self.random.choice([None, {}, [], "a", -1, 1e300])
                return (value, place) if LONG_PLACEHOLDER in json.dumps(value) else self.root(schema, model)
        return value, place

    def long(self, schema: Schema) -> tuple[str, str]:
        """A kind of long value and what it repeats: such as ``schema`` has in a valid body, else every second time."""
        right = self.valid or self.random.random() < 0.5
        kinds = ["text", "array", "array", "names", "names", "same names", "deep arrays", "deep objects", "number",
                 "fraction", "spaces"]  # fmt: skip
        kind = (_BY_TYPE.get(str(schema.get("type"))) if right else None) or self.random.choice(kinds)
        if kind == "text":
            return kind, self.random.choice(LETTERS[:-1] if self.valid else LETTERS)
        if kind.startswith("deep"):
            return kind, str(self.random.choice([2, 10, 30, 60, 100, 190, 1000, 100_000]))
        inner = schema.get("items") if kind == "array" else schema.get("additionalProperties")
        if right and isinstance(inner, Mapping) and inner:
            return kind, json.dumps(self._right(self._resolved(inner), 0))
        return kind, self.random.choice(VALUES)

    def _resolved(self, schema: Schema) -> Schema:
        """Without references, and one of several forms."""
        for _ in range(20):
            if "$ref" in schema:
                schema = self._schemas[str(schema["$ref"]).rpartition("/")[2]]
            elif forms := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
                schema = self.random.choice([form for form in forms if form.get("type") != "null"] or forms)
            else:
                return schema
        return schema

    def _with_mark(self, schema: Schema, steps: tuple[str, ...], depth: int) -> tuple[object, _Place]:
        """A value of ``schema`` with the mark in it, or as it."""
        properties: Mapping[str, Schema] = schema.get("properties", {})
        inside = bool(properties) or "items" in schema or isinstance(schema.get("additionalProperties"), Mapping)
        if steps and (not inside or depth >= DEEPEST or self.random.random() < 0.3):
            return LONG_PLACEHOLDER, _Place(steps, schema)
        if properties:
            value = self._object(schema, depth)
            name = self.random.choice(
                [*properties, *(["unknown"] if not self.valid and self.random.random() < 0.1 else [])]
            )
            inner = self._resolved(properties.get(name, {}))
            value[name], place = self._with_mark(inner, (*steps, name), depth + 1)
            return value, place
        if isinstance(schema.get("items"), Mapping):
            item, place = self._with_mark(self._resolved(schema["items"]), (*steps, "[]"), depth + 1)
            count = min(self.random.choice(REPEATS), schema.get("maxItems", REPEATS[-1]) if self.valid else REPEATS[-1])
            if self._places * count > REPEATS[-1]:
                count = 1
            self._places *= count
            return [item] * count, place
        named = self._resolved(schema.get("additionalProperties") or {})
        item, place = self._with_mark(named, (*steps, "{}"), depth + 1)
        return {"a": item}, place

    def _object(self, schema: Schema, depth: int) -> dict[str, object]:
        """What it needs, and what says which form it is; seldom some of the rest."""
        required = set(schema.get("required", ()))
        return {
            name: self._right(self._resolved(inner), depth + 1)
            for name, inner in schema.get("properties", {}).items()
            if name in required or "const" in inner or (not self.valid and self.random.random() < 0.01)
        }

    def _right(self, schema: Schema, depth: int) -> Any:
        """A short value of ``schema``."""
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        kind = schema.get("type")
        if kind == "string":
            return "a" * max(1, schema.get("minLength", 1))
        if kind in ("integer", "number"):
            least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
            return int(least) if kind == "integer" else least
        if kind == "boolean":
            return self.random.random() < 0.5
        if kind == "array":
            inner = schema.get("items")
            if not isinstance(inner, Mapping) or depth >= DEEPEST:
                return []
            return [self._right(self._resolved(inner), depth + 1)]
        if kind == "object" or "properties" in schema:
            return self._object(schema, depth) if depth < DEEPEST else {}
        return self.random.choice([None, "a", 1])
