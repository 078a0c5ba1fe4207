"""What a fuzzer of the API draws: the same body for the same seed, for every route, and no longer than it may be."""

import json

import jsonschema_rs
import pytest

from hostile.generated import LONG_PLACEHOLDER, Generator

PART = {"$ref": "#/components/schemas/Part"}
BODY = {
    "type": "object",
    "required": ["model", "parts"],
    "properties": {
        "model": {"type": "string"},
        "parts": {"anyOf": [{"type": "array", "items": PART}, {"type": "null"}]},
        "bias": {"type": "object", "additionalProperties": {"type": "number"}},
        "seed": {"type": "integer", "minimum": 3},
        "stop": {"type": "array", "maxItems": 4, "items": {"type": "string", "maxLength": 16}},
    },
}


def taking(schema: object) -> dict[str, object]:
    return {"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}}


DOCUMENT = {
    "components": {
        "schemas": {
            "Part": {
                "type": "object",
                "required": ["type"],
                "properties": {"type": {"const": "text"}, "text": {"type": "string"}, "next": PART},
            }
        }
    },
    "paths": {"/a": taking(BODY), "/b": taking(PART), "/c": {"get": {}}, "/d": taking({})},
}
SIZE = 50_000
CASES = [f"0/{number}" for number in range(150)]


@pytest.fixture(scope="module")
def generator() -> Generator:
    return Generator(DOCUMENT, {"/a": "one", "/b": "two", "/c": "three"})


def test_routes_with_a_body_and_a_model_are_drawn(generator: Generator) -> None:
    assert generator.paths == ["/a", "/b"]
    assert {generator.body(case).path for case in CASES} == {"/a", "/b"}


def test_a_case_is_the_same_body_again(generator: Generator) -> None:
    for case in CASES[:20]:
        assert generator.body(case) == generator.body(case)
    assert len({generator.body(case).text for case in CASES}) > 20


def test_bodies_fill_their_size_and_no_more(generator: Generator) -> None:
    lengths = []
    for case in CASES:
        body = generator.body(case)
        data = body.of_size(SIZE)
        assert len(data) <= max(SIZE, len(body.text) + 64 * body.text.count(LONG_PLACEHOLDER)), body
        assert LONG_PLACEHOLDER.encode() not in data
        lengths.append(len(data))
    assert sorted(lengths)[len(lengths) // 2] > SIZE * 0.9


def test_most_are_json_and_every_field_and_kind_is_drawn(generator: Generator) -> None:
    bodies = [generator.body(case) for case in CASES]
    good = 0
    for body in bodies:
        try:
            good += json.loads(body.of_size(SIZE)) is not None
        except (ValueError, RecursionError):
            assert body.kind in ("number", "fraction", "deep arrays", "deep objects"), body
    assert good > len(bodies) * 0.8
    fields = {body.name.partition(".")[0].partition(":")[0] for body in bodies if body.path == "/a"}
    assert {"parts", "bias", "seed", "model"} <= fields
    assert len({body.kind for body in bodies}) >= 8


def test_valid_bodies_hold_what_the_schema_allows(generator: Generator) -> None:
    schema = {**BODY, "components": DOCUMENT["components"], "additionalProperties": False}
    valid = [body for body in map(generator.body, CASES) if body.path == "/a" and body.valid]
    for body in valid:
        jsonschema_rs.validate(schema, json.loads(body.of_size(SIZE)))
    assert len(valid) > len(CASES) / 8
    assert {"parts", "bias", "stop"} <= {body.name.partition(".")[0].partition(":")[0] for body in valid}
