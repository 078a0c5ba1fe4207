"""The body of ``PATCH /paternoster/limits``, checked; pure."""

import json
from collections.abc import Mapping
from typing import Any

LARGEST_BODY = 4096
"""Bytes of a body."""
_LONGEST_ECHO = 60
QUEUE = "max_queue_milliseconds"
FIELDS = {"live_cap": 1, "token_budget": 1, QUEUE: 0}
"""Each limit that moves, and the least that it may be; a :data:`QUEUE` of 0 is no limit."""
CEILINGS = {"live_cap": "capacity", "token_budget": "max_batched_tokens"}
"""The fixed number that a limit is at most."""
LONGEST_QUEUE_MILLISECONDS = 86_400_000
_NAMES = f"{', '.join(list(FIELDS)[:-1])} or {list(FIELDS)[-1]}"


class InvalidLimits(ValueError):
    """A body that is refused with ``status``; ``field`` is empty where the whole body is wrong."""

    def __init__(self, status: int, field: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.field = field


def parse_limits(body: bytes | None) -> dict[str, int]:
    """The limits of a body that has some; raises :class:`InvalidLimits`, also for one too long to read: None.

    Upper bounds are the engine's, and are checked by :func:`check_bounds`.
    """
    if body is None or len(body) > LARGEST_BODY:
        raise InvalidLimits(413, "", f"the body has more than {LARGEST_BODY} bytes: must have at most {LARGEST_BODY}")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidLimits(400, "", 'the body is not JSON: must be like {"live_cap": 8}') from None
    if not isinstance(document, dict) or not document:
        raise InvalidLimits(422, "", f"the body is {_show_value(document)}: must be an object with {_NAMES}")
    for field, value in document.items():
        if field not in FIELDS:
            raise InvalidLimits(422, field[:_LONGEST_ECHO], f"{_show_value(field)} is no limit: must be {_NAMES}")
        if type(value) is not int or value < FIELDS[field]:
            text = f"{field} is {_show_value(value)}: must be a whole number of at least {FIELDS[field]}"
            raise InvalidLimits(422, field, text)
    return document


def check_bounds(limits: Mapping[str, int], present: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidLimits` for a limit above its ceiling in ``present``, the engine's own document."""
    for field, value in limits.items():
        ceiling = CEILINGS.get(field)
        most = LONGEST_QUEUE_MILLISECONDS if ceiling is None else present[ceiling]
        if value > most:
            its = "" if ceiling is None else f", its {ceiling}"
            raise InvalidLimits(422, field, f"{field} is {_show_value(value)}: must be at most {most}{its}")


def _show_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_ECHO else text[: _LONGEST_ECHO - 3] + "..."
