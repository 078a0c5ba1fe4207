"""What llguidance takes of a JSON schema too widely, said once more in words that it follows."""

from typing import Any

TIMES = ("time", "date-time")
NO_LEAP = {"pattern": "^[^:]*:[^:]*:[0-5]"}
"""Leap seconds, which it allows in every minute, are only in some by RFC 3339; no answer needs one."""
VALUES = ("const", "default", "enum", "examples")
"""Keywords with values in place of schemas."""


def narrowed(schema: Any) -> Any:
    """A schema, or part of one, in which times have no leap seconds."""
    if isinstance(schema, list):
        return [narrowed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: value if key in VALUES else narrowed(value) for key, value in schema.items()}
    if schema.get("format") in TIMES and isinstance(made.get("allOf", []), list):
        made["allOf"] = [*made.get("allOf", []), NO_LEAP]
    return made
