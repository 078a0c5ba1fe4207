"""Bound what a JSON text costs before anything is built of it."""

import json
from itertools import accumulate
from typing import Any

MAX_VALUES = 320_000
"""Values and names of one text: 300,000 token ids, which are OpenAI's limit of a call that embeds, and the rest."""
MAX_DEPTH = 200
"""Arrays and objects in one another."""
MAX_DIGITS = 1000
"""Limit for a number: to read an integer takes time by the square of its digits."""

_MARKS = b"[]{},:"
_NO_MARKS = bytes(set(range(256)) - set(_MARKS))
_DIGITS_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class JsonTooLarge(Exception):
    """A text breaks a bound, which the message names.

    No ``ValueError``: pydantic would collect it and go on.
    """


def count_values(data: bytes, what: str = "The body") -> int:
    """Return how many values and names ``data`` has, an empty array or object counting twice.

    ``data``: JSON as UTF-8; for what is no JSON the number is of no use, and no parser reaches a larger one. Raises
    :class:`JsonTooLarge`, with ``what`` in its message, above :data:`MAX_VALUES`, :data:`MAX_DEPTH` and
    :data:`MAX_DIGITS`. No object is built for a value: 4 MiB take some ten milliseconds.
    """
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A value or a name has at most two quotation marks.
    if data.count(b'"') > 2 * MAX_VALUES:
        raise JsonTooLarge(f"{what} has more than {MAX_VALUES} values and names")
    # Every second piece is outside of strings.
    pieces = data.split(b'"')
    outside = b"".join(pieces[::2])
    if b"0" * (MAX_DIGITS + 1) in outside.translate(_DIGITS_AS_ZERO):
        raise JsonTooLarge(f"{what} has a number of more than {MAX_DIGITS} digits")
    marks = outside.translate(None, _NO_MARKS)
    count = 1 + sum(map(marks.count, (b",", b":", b"[", b"{")))
    if count > MAX_VALUES:
        raise JsonTooLarge(f"{what} has more than {MAX_VALUES} values and names")
    brackets = marks.translate(None, b",:")
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MAX_DEPTH:
        raise JsonTooLarge(f"{what} is nested deeper than {MAX_DEPTH} arrays and objects")
    return count


def bounded_json(data: bytes, what: str = "The body") -> Any:
    """Return what ``data`` is as JSON. Raises ``ValueError``, and :class:`JsonTooLarge` as :func:`count_values`.

    Bytes other than UTF-8 are refused: in UTF-16 marks are other bytes than those that are counted.
    """
    count_values(data, what)
    return json.loads(data.decode("utf-8-sig"))
