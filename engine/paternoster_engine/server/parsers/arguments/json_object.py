"""Arguments that are one JSON object."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.json_schema import with_options

Arguments = Callable[[str, Mapping[str, Any], Mapping[str, int]], Iterator[str]]
"""From a rule's name, a function's schema, and marks that are control tokens -> their ids, lines of Lark: the rule, and
what it needs, under names that begin with the rule's.
"""
OF_OBJECTS = (
    "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "enum", "const",
    "patternProperties", "propertyNames", "minProperties", "maxProperties", "dependentRequired", "dependentSchemas",
    "dependencies", "unevaluatedProperties",
)  # fmt: skip
"""Keywords of all arguments together, beside ``properties``, ``required`` and ``additionalProperties``."""


def json_object(rule: str, schema: Mapping[str, Any], special: Mapping[str, int]) -> Iterator[str]:
    """The schema stands at the root of a grammar of its own, so that its ``$ref`` lead where they did."""
    yield f"{rule}: {json_of({'type': 'object', **schema})}"


def json_of(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps(with_options(schema))}"
