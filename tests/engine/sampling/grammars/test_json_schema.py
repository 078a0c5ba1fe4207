"""Schemas said in narrower words: what their keywords say, and never what their names are called."""

from typing import Any

import pytest

from paternoster_engine.sampling.grammars.json_schema import NAMED, NO_LEAP, VALUES, narrowed
from paternoster_engine.server.parsers.schemas import standing_alone

TIME = {"type": "string", "format": "time"}
NAMES = (*VALUES, *NAMED, "format", "allOf", "$ref", "required")


@pytest.mark.parametrize("keyword", NAMED)
@pytest.mark.parametrize("name", NAMES)
def test_a_schema_may_be_named_as_a_keyword(keyword: str, name: str) -> None:
    made = narrowed({keyword: {name: TIME}})
    assert made == {keyword: {name: {**TIME, "allOf": [NO_LEAP]}}}


@pytest.mark.parametrize("keyword", VALUES)
def test_values_are_no_schemas(keyword: str) -> None:
    said: dict[str, Any] = {"properties": {"a": {keyword: [TIME, {"properties": TIME}]}}}
    assert narrowed(said) == said


@pytest.mark.parametrize("name", NAMES)
def test_what_a_named_schema_refers_to_comes_with_it(name: str) -> None:
    made = standing_alone({"properties": {name: {"$ref": "#/$defs/time"}}}, {"$defs": {"time": TIME}})
    assert made == {"properties": {name: {"$ref": "#/$defs/d0"}}, "$defs": {"d0": TIME}}
