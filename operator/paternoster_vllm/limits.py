"""The body of ``PATCH /paternoster/limits``, checked; pure."""

import json
from collections.abc import Mapping
from typing import Any

LARGEST_BODY = 4096
"""Bytes of a body."""
_LONGEST_ECHO = 60
FIELDS = {"live_cap": "capacity", "token_budget": "max_batched_tokens"}
"""Each limit that moves, and the fixed number that it is at most."""


class InvalidLimits(ValueError):
    """A body that is refused with ``status``; ``field`` is empty where the whole body is wrong."""

    def __init__(self, status: int, field: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.field = field


def parse_limits(body: bytes | None) -> dict[str, int]:
    """The limits of a body that has one or both; raises :class:`InvalidLimits`, also for one too long to read: None.

    Upper bounds are the engine's, and are checked by :func:`check_bounds`.
    """
    if body is None or len(body) > LARGEST_BODY:
        raise InvalidLimits(413, "", f"the body has more than {LARGEST_BODY} bytes: must have at most {LARGEST_BODY}")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidLimits(400, "", 'the body is not JSON: must be like {"live_cap": 8}') from None
    if not isinstance(document, dict) or not document:
        raise InvalidLimits(
            422, "", f"the body is {_show_value(document)}: must be an object with {' or '.join(FIELDS)}"
        )
    for field, value in document.items():
        if field not in FIELDS:
            raise InvalidLimits(
                422, field[:_LONGEST_ECHO], f"{_show_value(field)} is no limit: must be {' or '.join(FIELDS)}"
            )
        if type(value) is not int or value < 1:
            raise InvalidLimits(422, field, f"{field} is {_show_value(value)}: must be a whole number of at least 1")
    return document


def check_bounds(limits: Mapping[str, int], present: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidLimits` for a limit above its fixed number in ``present``, the engine's own document."""
    for field, value in limits.items():
        most = present[FIELDS[field]]
        if value > most:
            raise InvalidLimits(
                422, field, f"{field} is {_show_value(value)}: must be at most {most}, its {FIELDS[field]}"
            )


def _show_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_ECHO else text[: _LONGEST_ECHO - 3] + "..."
