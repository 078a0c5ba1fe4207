"""Requests to the gateway on behalf of a batch's owner: one attempt each, whose answer is bounded."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp

from paternoster_batch.line_format import answered_line, invalid_line, line_id, line_seed
from paternoster_batch.store import BatchRow, LineResult, LineSpan
from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import BATCH_TO_GATEWAY, vouch_headers
from paternoster_contract.http import paths
from paternoster_contract.http.headers import REQUEST_ID
from paternoster_http.bounded_answers import READ_BUFFER, bounded_connector

MAX_ANSWER_BYTES = 8 * 2**20
"""Limit for an answer to a line, or to a question for a model."""
CONNECT_SECONDS = 5
SEEDED = frozenset({"/v1/chat/completions", "/v1/completions"})
"""Endpoints whose bodies have ``seed``."""
MAX_RETRY_AFTER_SECONDS = 60.0
_MAX_TOKENS = 2**53


@dataclass(frozen=True, slots=True)
class TryLater:
    """The gateway answers, or may answer, otherwise later: it has no place, no replica, or no connection."""

    reason: str
    after_seconds: float | None = None
    """Delay that its ``Retry-After`` asks for."""


@dataclass(frozen=True, slots=True)
class ModelRefusal:
    """The owner of a batch may not ask its model: OpenAI's code, and the reason."""

    code: str
    model: str
    reason: str

    def describe(self, field: str) -> str:
        """The refusal of the ``field`` that names the model."""
        return f"{field} is {json.dumps(self.model)}: {self.reason}"


class GatewayClient:
    """Connections to one gateway."""

    def __init__(self, url: str, roots: KeyFiles | None) -> None:
        """``roots``: from which the keys for the gateway are made; without them none is sent."""
        self._url = url.rstrip("/")
        self._roots = roots
        self._opened: aiohttp.ClientSession | None = None

    async def open_session(self) -> None:
        self._opened = aiohttp.ClientSession(
            connector=bounded_connector(limit=0), read_bufsize=READ_BUFFER,
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS),
        )  # fmt: skip

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def check_model(self, owner: str, model: str) -> ModelRefusal | TryLater | None:
        """Check whether ``owner`` may ask ``model``; None where it may."""
        path = paths.MODEL.replace("{model:path}", quote(model, safe="/"))
        answer = await self._send("GET", path, owner)
        if isinstance(answer, TryLater):
            return answer
        status = answer[0]
        if status == 200:
            return None
        if status in (401, 403):
            return ModelRefusal("invalid_api_key", model, "the key that made the batch does not open the model")
        if status == 404:
            return ModelRefusal("model_not_found", model, "no model is served under this name")
        return TryLater(f"status {status}")

    async def send_line(self, batch: BatchRow, line: LineSpan, body: dict[str, Any]) -> LineResult | TryLater:
        """Send a line's ``body``; returns the gateway's answer to it."""
        if batch.endpoint in SEEDED and body.get("seed") is None:
            body = body | {"seed": line_seed(batch.id, line.number)}
        # No longer than it came, so that the gateway's limit holds for it as for the line; half pairs are escaped.
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        data, headers = text.encode(errors="backslashreplace"), {REQUEST_ID: line_id(batch.id, line.number)}
        answer = await self._send("POST", batch.endpoint, batch.owner, data, headers)
        if isinstance(answer, TryLater):
            return answer
        status, received, request_id = answer
        try:
            if received is None:
                raise ValueError(f"it is longer than {MAX_ANSWER_BYTES} bytes")
            document = json.loads(received)
        except (ValueError, RecursionError) as error:
            message = f"the answer with status {status} cannot be kept: {error}"[:1000]
            content = invalid_line(batch.api, batch.id, line.number, line.custom_id, message)
            return LineResult(line.number, content, False)
        content = answered_line(batch.api, batch.id, line.number, line.custom_id, status, request_id, document)
        return LineResult(line.number, content, status < 400, count_tokens(document))

    async def _send(
        self, method: str, path: str, owner: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes | None, str] | TryLater:
        """Status, body and id of the answer; the body is None where it is too long."""
        assert self._opened is not None
        sent = {"Content-Type": "application/json", **(headers or {})}
        keys = [vouch_headers(root, BATCH_TO_GATEWAY, owner) for root in self._roots.keys] if self._roots else []
        try:
            for key in keys or [{}]:
                async with self._opened.request(
                    method, self._url + path, data=data, headers={**sent, **key}, allow_redirects=False
                ) as answer:
                    if answer.status in (429, 503):
                        return TryLater(f"status {answer.status}", _read_retry_after(answer.headers))
                    found = answer.status, await _read(answer), answer.headers.get(REQUEST_ID, "")
                if answer.status != 401:
                    break
            return found
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return TryLater(f"{type(error).__name__}: {error}")


def count_tokens(document: Any) -> tuple[int, int, int, int]:
    """Input, cached, output and reasoning tokens of an answer's ``usage``, by the names of each API.

    Anthropic's ``input_tokens`` count none that a cache answered or that were written to it.
    """
    usage = document.get("usage") if isinstance(document, dict) else None
    read, written = (_find_count(usage, f"cache_{part}_input_tokens") for part in ("read", "creation"))
    return (
        _find_count(usage, "prompt_tokens", "input_tokens") + read + written,
        _find_count(usage, "prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens") + read,
        _find_count(usage, "completion_tokens", "output_tokens"),
        _find_count(usage, "completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens"),
    )


def _find_count(usage: Any, *names: str) -> int:
    for name in names:
        value = usage
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if type(value) is int and 0 <= value < _MAX_TOKENS:
            return value
    return 0


async def _read(answer: aiohttp.ClientResponse) -> bytes | None:
    pieces, size = [], 0
    async for piece in answer.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            return None
    return b"".join(pieces)


def _read_retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("Retry-After", "")
    return min(float(value), MAX_RETRY_AFTER_SECONDS) if value.isascii() and value.isdecimal() else None
