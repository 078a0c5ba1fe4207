"""Parts of schemas: what their keywords say, and never what their names are called."""

from typing import Any

import pytest

from paternoster_engine.sampling.grammars.json_schema import NAMED_KEYWORDS, VALUE_KEYWORDS, with_parts
from paternoster_engine.server.parsers.schemas import standing_alone

TIME = {"type": "string", "format": "time"}
NAMES = (*VALUE_KEYWORDS, *NAMED_KEYWORDS, "format", "allOf", "$ref", "required")


def _changed(part: Any) -> Any:
    return True if part == TIME else part


@pytest.mark.parametrize("keyword", NAMED_KEYWORDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_schema_may_be_named_as_a_keyword(keyword: str, name: str) -> None:
    assert with_parts({keyword: {name: TIME}}, _changed) == {keyword: {name: True}}


@pytest.mark.parametrize("keyword", VALUE_KEYWORDS)
def test_values_are_no_schemas(keyword: str) -> None:
    schema_with_parts: dict[str, Any] = {keyword: [TIME, {"properties": TIME}]}
    assert with_parts(schema_with_parts, _changed) == schema_with_parts


@pytest.mark.parametrize("name", NAMES)
def test_what_a_named_schema_refers_to_comes_with_it(name: str) -> None:
    made = standing_alone({"properties": {name: {"$ref": "#/$defs/time"}}}, {"$defs": {"time": TIME}})
    assert made == {"properties": {name: {"$ref": "#/$defs/d0"}}, "$defs": {"d0": TIME}}
