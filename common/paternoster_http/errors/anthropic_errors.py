"""Errors in the form of Anthropic's API, for its paths: ``{"type": "error", "error": {...}, "request_id"}``."""

from collections.abc import Mapping
from typing import Any

from paternoster_http.errors.request_id import current_request_id

TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Type of each status; of the others below 500 ``invalid_request_error``, and ``api_error`` from there on."""


def error_body(status: int, message: str, request_id: str = "") -> dict[str, Any]:
    """Return the error with ``request_id``, by default that of the current request."""
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    body = {"type": "error", "error": {"type": kind, "message": message}}
    request_id = request_id or current_request_id.get()
    return body | {"request_id": request_id} if request_id else body
