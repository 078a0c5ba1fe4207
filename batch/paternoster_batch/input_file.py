"""Input files of batches, validated while they are read: all of their lines may run, or none. Pure.

A file is read in pieces, of which none and no line is kept. Lines end with LF or CRLF and with nothing else, so that
U+2028 in a text ends none; blank ones, and a byte order mark at the beginning, are passed over.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NoReturn

from paternoster_batch.store import LineSpan
from paternoster_http.json_bounds import JsonTooLarge, count_values

ENDPOINTS = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/rerank",
    "/v1/messages",
)  # fmt: skip
MAX_LINES = 50_000
MAX_LINE_BYTES = 4 * 2**20
"""A gateway's default for a body."""
MAX_NAME = 512
"""Characters of a ``custom_id`` or of a model's name."""
MOST_ERRORS = 100
"""Errors that are listed; what is behind the last of them is not read."""
MOST_SHOWN = 64
"""Characters of a client's text in an error."""
READ_BYTES = 2**16
"""Bytes of a piece of a file."""
BOM = b"\xef\xbb\xbf"
_HALF_PAIR = re.compile("[\ud800-\udfff]")


class InvalidLine(Exception):
    """A line may not run: OpenAI's code, and the field if it is one's fault."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


@dataclass
class InputFile:
    """Result of :meth:`read`."""

    endpoint: str
    model: str = ""
    lines: list[LineSpan] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    """Errors for the ``errors.data`` of a batch."""
    _custom_ids: set[bytes] = field(default_factory=set)
    _first_with_model: int = 0

    @classmethod
    def read(cls, pieces: Iterable[bytes], endpoint: str) -> "InputFile":
        """Validate the file that ``pieces`` are, for a batch of ``endpoint``."""
        file = cls(endpoint)
        for number, start, line in split_lines(pieces):
            try:
                if line is None:
                    refuse_line("line_too_long", f"the line is longer than {MAX_LINE_BYTES} bytes")
                file._add_line(number, start, line)
            except InvalidLine as error:
                file.errors.append({"code": error.code, "message": str(error), "param": error.param, "line": number})
                if len(file.errors) == MOST_ERRORS or error.code == "too_many_tasks":
                    break
        if not (file.lines or file.errors):
            file.errors.append({"code": "empty_batch", "message": "the file has no lines", "param": None, "line": None})
        return file

    def _add_line(self, number: int, start: int, line: bytes) -> None:
        if start == 0 and line.startswith(BOM):
            start, line = len(BOM), line[len(BOM) :]
            if not line.strip():
                return
        custom_id, body = parse_line(line, self.endpoint)
        if len(self.lines) == MAX_LINES:
            refuse_line("too_many_tasks", f"the file has more than {MAX_LINES} lines")
        digest = blake2b(custom_id.encode(), digest_size=16).digest()
        if digest in self._custom_ids:
            refuse_line(
                "duplicate_custom_id", f"custom_id is {show_value(custom_id)}: an earlier line has it", "custom_id"
            )
        self._custom_ids.add(digest)
        if not self.model:
            self.model, self._first_with_model = body["model"], number
        elif body["model"] != self.model:
            refuse_line(
                "mismatched_model",
                f"body.model is {show_value(body['model'])}: must be {show_value(self.model)}, as in line "
                f"{self._first_with_model}, since all lines ask one model", "body.model",
            )  # fmt: skip
        self.lines.append(LineSpan(number, custom_id, start, len(line)))


def split_lines(pieces: Iterable[bytes]) -> Iterator[tuple[int, int, bytes | None]]:
    """Number, first byte and content of each line that is not blank; None as the content of one that is too long."""
    number, start, rest, too_long = 1, 0, b"", False
    for piece in pieces:
        *ended, last = piece.split(b"\n")
        for part in ended:
            line, size = rest + part, len(rest) + len(part)
            if too_long or size > MAX_LINE_BYTES:
                yield number, start, None
            elif line.strip():
                yield number, start, line
            number, start, rest, too_long = number + 1, start + size + 1, b"", False
        rest += last
        if len(rest) > MAX_LINE_BYTES:
            start, rest, too_long = start + len(rest), b"", True
    if too_long or rest.strip():
        yield number, start, None if too_long else rest


def parse_line(line: bytes, endpoint: str) -> tuple[str, dict[str, Any]]:
    """``custom_id`` and ``body`` of a line; raises :class:`InvalidLine`."""
    document = parse_line_json(line)
    if not isinstance(document, dict):
        refuse_line("invalid_json_line", "the line must be an object with custom_id, method, url and body")
    custom_id, body = document.get("custom_id"), document.get("body")
    if not is_name(custom_id):
        message = f"custom_id is {show_value(custom_id)}: must be a text of 1 to {MAX_NAME} characters"
        refuse_line("invalid_custom_id", message, "custom_id")
    if document.get("method") != "POST":
        refuse_line("invalid_method", f"method is {show_value(document.get('method'))}: must be POST", "method")
    if document.get("url") != endpoint:
        message = f"url is {show_value(document.get('url'))}: must be {endpoint}, the endpoint of the batch"
        refuse_line("url_mismatch", message, "url")
    if not isinstance(body, dict):
        refuse_line("invalid_body", "body must be an object", "body")
    if not is_name(body.get("model")):
        message = f"body.model is {show_value(body.get('model'))}: must be a model's name of 1 to {MAX_NAME} characters"
        refuse_line("invalid_body", message, "body.model")
    if body.get("stream") not in (None, False):
        message = f"body.stream is {show_value(body['stream'])}: must be false, since a batch has no streams"
        refuse_line("stream_not_supported", message, "body.stream")
    return str(custom_id), body


def is_name(value: Any) -> bool:
    """Whether it is a text as names of models and ``custom_id`` are."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and not _HALF_PAIR.search(value)


def parse_line_json(line: bytes, what: str = "the line") -> Any:
    """``line`` as JSON, without what JSON lacks or leaves open; raises :class:`InvalidLine`."""
    try:
        count_values(line, what)
        return json.loads(
            line.decode(), object_pairs_hook=_as_object, parse_constant=_refuse_constant,
            parse_float=_as_finite,
        )  # fmt: skip
    except (JsonTooLarge, ValueError, RecursionError) as error:
        refuse_line("invalid_json_line", f"{what} is not JSON: {error}"[:1000])


def _as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the field {show_value(twice)} stands twice in an object")
    return document


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _as_finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{show_value(text)} is beyond the largest number")
    return value


def show_value(value: Any) -> str:
    """A value of a client, in an error."""
    text = json.dumps(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def refuse_line(code: str, message: str, param: str | None = None) -> NoReturn:
    """Raise :class:`InvalidLine`."""
    raise InvalidLine(code, message, param)
