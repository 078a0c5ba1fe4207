"""Errors in the form of OpenAI's API: ``{"error": {"message", "type", "param", "code"}}``.

``code`` is a text or null there, and clients' types hold it to that; the status stands in the answer's head. Where
OpenAI's API has a name for a failure, clients and frameworks look for it.
https://platform.openai.com/docs/guides/error-codes
"""

from collections.abc import Mapping
from typing import Any

CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
MODEL_NOT_FOUND = "model_not_found"
CODES: Mapping[int, str] = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
"""Code of each status that has one name."""


def error_body(
    status: int, kind: str, message: str, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """``kind`` is the error's type, ``param`` the field of the request that it is about."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code or CODES.get(status)}}
