"""Schemas whose parts lead to one another many times are rewritten after a bounded number of looks."""

from typing import Any

import pytest

from paternoster_engine.sampling.grammars.schemas.enforceable import make_enforceable

HOSTILE: dict[str, dict[str, Any]] = {
    "evaluated in each other": {"allOf": [{"unevaluatedProperties": False, "allOf": [{"$ref": "#"}] * 50}] * 50},
    "options of options": {"oneOf": [{"anyOf": [{"anyOf": [{"minLength": 1}] * 20}] * 20}] * 2},
    "references in a ring": {
        "$defs": {f"d{i}": {"$ref": f"#/$defs/d{(i + 1) % 500}"} for i in range(500)},
        "oneOf": [{"$ref": "#/$defs/d0"}] * 800,
    },
    "names that share a long schema": {
        "type": "object",
        "propertyNames": {"enum": [f"n{i}" for i in range(200)]},
        "additionalProperties": {"enum": list(range(5000))},
    },
}


@pytest.mark.parametrize("name", HOSTILE)
def test_it_ends_and_is_told(name: str) -> None:
    """Without a bound the first would take 50 to the 16th looks.

    A definition is written at most twice, open and closed.
    """
    made = make_enforceable(HOSTILE[name])
    assert made.unenforced
    assert len(str(made.schema)) < 4 * len(str(HOSTILE[name]))
