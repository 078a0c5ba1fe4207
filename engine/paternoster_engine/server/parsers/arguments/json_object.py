"""Arguments that are one JSON object."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.json_schema import narrowed

Arguments = Callable[[str, Mapping[str, Any], Mapping[str, int]], Iterator[str]]
"""From a rule's name, a function's schema, and marks that are control tokens -> their ids, lines of Lark: the rule, and
what it needs, under names that begin with the rule's.
"""


def json_object(rule: str, schema: Mapping[str, Any], special: Mapping[str, int]) -> Iterator[str]:
    """The schema stands at the root of a grammar of its own, so that its ``$ref`` lead where they did."""
    yield f"{rule}: {json_of({'type': 'object', **schema})}"


def json_of(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps(narrowed(dict(schema)))}"
