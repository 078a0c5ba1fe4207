"""The lines of output and error files, as OpenAI's Batch API has them. Pure.

What is random in an answer is drawn from :func:`line_digest`, so that a line that is sent twice is answered alike.
"""

import json
from hashlib import sha256
from typing import Any

MAX_SEED = 2**63 - 1
UNANSWERED = {
    "cancelled": ("batch_cancelled", "The batch was cancelled before this line was answered."),
    "expired": ("batch_expired", "The batch expired before this line was answered."),
}
"""Code and message of a line that had no answer at its batch's end, by the state in which the batch ended."""


def line_digest(batch: str, number: int) -> bytes:
    """Digest of line ``number`` of a batch, the same at every attempt: 32 bytes."""
    return sha256(f"{batch}/{number}".encode()).digest()


def line_id(batch: str, number: int) -> str:
    """The ``id`` of a result, which is the ``X-Request-Id`` of its request as well."""
    return f"batch_req_{line_digest(batch, number).hex()[:32]}"


def line_seed(batch: str, number: int) -> int:
    """The ``seed`` of a line whose body has none."""
    return int.from_bytes(line_digest(batch, number)[:8]) & MAX_SEED


def answered_line(batch: str, number: int, custom_id: str, status: int, request_id: str, body: Any) -> bytes:
    """A line that the gateway answered with ``status``; from 400 on it belongs into the error file."""
    response = {"status_code": status, "request_id": request_id, "body": body}
    error = None if status < 400 else {"code": str(status), "message": f"the request was answered with {status}"}
    return _encode_line(batch, number, custom_id, response, error)


def unanswered_line(batch: str, number: int, custom_id: str, code: str, message: str) -> bytes:
    """A line without an answer."""
    return _encode_line(batch, number, custom_id, None, {"code": code, "message": message})


def _encode_line(batch: str, number: int, custom_id: str, response: Any, error: Any) -> bytes:
    line = {"id": line_id(batch, number), "custom_id": custom_id, "response": response, "error": error}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"
