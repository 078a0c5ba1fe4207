"""Bodies of Anthropic's ``POST /v1/messages/batches``, validated while they are read: all may run, or none. Pure.

The body is the batch's input: each of its ``requests`` is a line, found by its place in the body. No more of it is in
memory than :data:`WINDOW_BYTES` and a piece.
"""

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from paternoster_batch.input_file import (
    MAX_LINE_BYTES,
    MAX_NAME,
    InvalidLine,
    is_name,
    parse_line_json,
    refuse_line,
    show_value,
)
from paternoster_batch.store import LineSpan

MAX_BODY_BYTES = 256 * 2**20
MAX_REQUESTS = 100_000
MAX_MODELS = 64
"""Models of one batch: for each of them the gateway is read."""
WINDOW_BYTES = MAX_LINE_BYTES + 2**20
MOST_SHOWN = 10
"""Errors that are named of one body."""

_SPACE = rb"[ \t\r\n]*+"
_BEGIN = re.compile(_SPACE.join((rb"(?:\xef\xbb\xbf)?", rb"\{", rb'"requests"', rb":", rb"\[", b"")))
_COMMA = re.compile(_SPACE + b"," + _SPACE)
_CLOSE = re.compile(_SPACE + rb"\]")
_END = re.compile(_SPACE.join((b"", rb"\}", rb"\Z")))
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
"""A text, or a mark outside of texts. A text without an end is one, so that none of its marks is looked at again."""
_CUSTOM_ID = re.compile("[a-zA-Z0-9_-]{1,64}")


class InvalidRequests(Exception):
    """The body is no batch; the text names each request that may not run by its place from 0, as Anthropic's does."""


@dataclass
class MessageRequests:
    """Result of :meth:`read`."""

    models: dict[str, int] = field(default_factory=dict)
    """Models in the order in which they come, each with the place of the first request to it."""
    _custom_ids: dict[str, None] = field(default_factory=dict)
    _spans: "array[int]" = field(default_factory=lambda: array("Q"))
    """First byte and size of each request: as objects, all of a batch would be some ten megabytes."""

    @property
    def lines(self) -> Iterator[LineSpan]:
        """The requests in order."""
        for place, custom_id in enumerate(self._custom_ids):
            yield LineSpan(place + 1, custom_id, *self._spans[2 * place : 2 * place + 2])

    @classmethod
    def read(cls, pieces: Iterable[bytes]) -> "MessageRequests":
        """Validate the body that ``pieces`` are; raises :class:`InvalidRequests`."""
        requests, errors = cls(), []
        try:
            for place, (start, content) in enumerate(split_requests(pieces)):
                try:
                    requests._add_request(place, start, content)
                except InvalidLine as error:
                    errors.append(f"requests.{place}{f'.{error.param}' if error.param else ''}: {error}")
                    if len(errors) == MOST_SHOWN or error.code == "too_many_tasks":
                        break
        except InvalidRequests as error:
            errors.append(str(error))
        if errors:
            raise InvalidRequests("; ".join(errors))
        if not requests._custom_ids:
            raise InvalidRequests("requests: must have at least one")
        return requests

    def _add_request(self, place: int, start: int, content: bytes) -> None:
        if place == MAX_REQUESTS:
            refuse_line("too_many_tasks", f"the batch has more than {MAX_REQUESTS} requests")
        custom_id, params = parse_request(content)
        if custom_id in self._custom_ids:
            refuse_line("duplicate_custom_id", f"{show_value(custom_id)} is that of an earlier request", "custom_id")
        self.models.setdefault(params["model"], place)
        if len(self.models) > MAX_MODELS:
            refuse_line("too_many_models", f"the batch has more than {MAX_MODELS} models", "params.model")
        self._custom_ids[custom_id] = None
        self._spans.extend((start, len(content)))


def parse_request(content: bytes) -> tuple[str, dict[str, Any]]:
    """``custom_id`` and ``params`` of one of the requests; raises :class:`InvalidLine`."""
    document = parse_line_json(content, "the request")
    custom_id, params = document.get("custom_id"), document.get("params")
    if extra := sorted(document.keys() - {"custom_id", "params"}):
        refuse_line("extra_field", f"{show_value(extra[0])}: a request has custom_id and params alone")
    if not isinstance(custom_id, str) or not _CUSTOM_ID.fullmatch(custom_id):
        message = f"{show_value(custom_id)}: must be a text of 1 to 64 letters, digits, '-' and '_'"
        refuse_line("invalid_custom_id", message, "custom_id")
    if not isinstance(params, dict):
        refuse_line("invalid_params", f"{show_value(params)}: must be an object", "params")
    if not is_name(params.get("model")):
        message = f"{show_value(params.get('model'))}: must be a model's name of 1 to {MAX_NAME} characters"
        refuse_line("invalid_params", message, "params.model")
    if params.get("stream") not in (None, False):
        message = f"{show_value(params['stream'])}: must be false, since a batch has no streams"
        refuse_line("stream_not_supported", message, "params.stream")
    return custom_id, params


def split_requests(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """First byte and content of each object in ``requests``; raises :class:`InvalidRequests`."""
    window = _Window(pieces)
    if not window.skip(_BEGIN):
        raise InvalidRequests("the body must be a JSON object whose only field is requests, a list of objects")
    place = 0
    while not (is_closed := window.skip(_CLOSE)) and (place == 0 or window.skip(_COMMA)):
        yield window.read_object(place)
        place += 1
    if not is_closed:
        raise InvalidRequests(f"requests.{place}: must follow a comma, or the list must end")
    if not window.skip(_END):
        raise InvalidRequests("the body must end behind the list of requests, which is its only field")


class _Window:
    """A part of a body that moves on, of at least :data:`MAX_LINE_BYTES` until the body's end."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._data = b""
        self._data_start = 0
        """Place of the first byte of the data in the body."""
        self._at = 0

    def skip(self, pattern: re.Pattern[bytes]) -> bool:
        """Go behind ``pattern``; False where something else is there."""
        self._fill()
        found = pattern.match(self._data, self._at)
        if found:
            self._at = found.end()
        return found is not None

    def read_object(self, place: int) -> tuple[int, bytes]:
        """Go behind the object that begins here; raises :class:`InvalidRequests`."""
        self._fill()
        start, depth = self._at, 0
        if self._data[start : start + 1] != b"{":
            raise InvalidRequests(f"requests.{place}: must be an object")
        for token in _TOKEN.finditer(self._data, start, start + MAX_LINE_BYTES):
            bracket = self._data[token.start()]
            depth += (bracket in b"[{") - (bracket in b"]}")
            if depth == 0:
                self._at = token.end()
                return self._data_start + start, self._data[start : self._at]
        raise InvalidRequests(f"requests.{place}: must be an object of at most {MAX_LINE_BYTES} bytes, and has no end")

    def _fill(self) -> None:
        if len(self._data) - self._at > MAX_LINE_BYTES:
            return
        parts, size = [self._data[self._at :]], len(self._data) - self._at
        self._data_start += self._at
        self._data, self._at = b"", 0  # both would be in memory otherwise
        while size < WINDOW_BYTES and (piece := next(self._pieces, None)) is not None:
            parts.append(piece)
            size += len(piece)
        self._data = b"".join(parts)
