"""The lines of results, as the Batch APIs of OpenAI and Anthropic have them. Pure.

What is random in an answer is drawn from :func:`line_digest`, so that a line that is sent twice is answered alike.
"""

import json
from enum import StrEnum
from hashlib import sha256
from typing import Any

from paternoster_http.errors import anthropic_errors

MAX_SEED = 2**63 - 1
UNANSWERED = {
    "cancelled": ("batch_cancelled", "The batch was cancelled before this line was answered.", "canceled"),
    "expired": ("batch_expired", "The batch expired before this line was answered.", "expired"),
}
"""OpenAI's code and message and Anthropic's type for a line that had no answer, by the state in which its batch ended.
"""


class BatchApi(StrEnum):
    """The API by which a batch was created, and whose form its results have."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


def line_digest(batch: str, number: int) -> bytes:
    """Digest of line ``number`` of a batch, the same at every attempt: 32 bytes."""
    return sha256(f"{batch}/{number}".encode()).digest()


def line_id(batch: str, number: int) -> str:
    """The ``id`` of a result, which is the ``X-Request-Id`` of its request as well."""
    return f"batch_req_{line_digest(batch, number).hex()[:32]}"


def line_seed(batch: str, number: int) -> int:
    """The ``seed`` of a line whose body has none."""
    return int.from_bytes(line_digest(batch, number)[:8]) & MAX_SEED


def answered_line(api: str, batch: str, number: int, custom_id: str, status: int, request_id: str, body: Any) -> bytes:
    """A line that the gateway answered with ``status``; from 400 on it has failed."""
    if api == BatchApi.ANTHROPIC:
        return _encode_answered_message(custom_id, status, request_id, body)
    response = {"status_code": status, "request_id": request_id, "body": body}
    error = None if status < 400 else {"code": str(status), "message": f"the request was answered with {status}"}
    return _encode_line(batch, number, custom_id, response, error)


def invalid_line(api: str, batch: str, number: int, custom_id: str, message: str) -> bytes:
    """A line whose answer cannot be kept, for the reason in ``message``."""
    if api == BatchApi.ANTHROPIC:
        error = anthropic_errors.error_body(500, message, line_id(batch, number))
        return _encode_message(custom_id, {"type": "errored", "error": error})
    return _encode_line(batch, number, custom_id, None, {"code": "invalid_answer", "message": message})


def unanswered_line(api: str, batch: str, number: int, custom_id: str, outcome: str) -> bytes:
    """A line without an answer of a batch that ended as ``outcome``."""
    code, message, kind = UNANSWERED[outcome]
    if api == BatchApi.ANTHROPIC:
        return _encode_message(custom_id, {"type": kind})
    return _encode_line(batch, number, custom_id, None, {"code": code, "message": message})


def _encode_line(batch: str, number: int, custom_id: str, response: Any, error: Any) -> bytes:
    return _encode({"id": line_id(batch, number), "custom_id": custom_id, "response": response, "error": error})


def _encode_answered_message(custom_id: str, status: int, request_id: str, body: Any) -> bytes:
    if status < 400:
        usage = body.get("usage") if isinstance(body, dict) else None
        if isinstance(usage, dict):
            body = body | {"usage": usage | {"service_tier": "batch"}}
        return _encode_message(custom_id, {"type": "succeeded", "message": body})
    if not (isinstance(body, dict) and body.get("type") == "error"):
        body = anthropic_errors.error_body(status, f"the request was answered with {status}", request_id)
    return _encode_message(custom_id, {"type": "errored", "error": body})


def _encode_message(custom_id: str, result: dict[str, Any]) -> bytes:
    return _encode({"custom_id": custom_id, "result": result})


def _encode(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"
