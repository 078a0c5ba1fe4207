"""Errors in the form that clients of each path's API read: Anthropic's, Cohere's, Voyage's, or else OpenAI's."""

from typing import Any

from paternoster_http.errors import anthropic_errors
from paternoster_http.errors.anthropic_paths import is_anthropic
from paternoster_http.errors.request_id import current_request_id

COHERE_PREFIX = "/v2/"
"""Prefix of all paths of Cohere's API: OpenAI's has none of them."""
SHARED_WITH_VOYAGE = ("/v1/embeddings", "/v1/rerank")
"""Paths that Voyage's API has as OpenAI's and Jina's do."""


def has_vendor_form(path: str) -> bool:
    """Whether errors of ``path`` differ from OpenAI's."""
    return is_anthropic(path) or path.startswith(COHERE_PREFIX) or path in SHARED_WITH_VOYAGE


def vendor_body(path: str, status: int, document: dict[str, Any], request_id: str = "") -> dict[str, Any]:
    """Return ``document``, an error in OpenAI's form, in that of ``path``.

    ``request_id``: by default that of the current request.
    """
    message = document["error"]["message"]
    request_id = request_id or current_request_id.get()
    if is_anthropic(path):
        return anthropic_errors.error_body(status, message, request_id)
    if path.startswith(COHERE_PREFIX):
        return ({"id": request_id} if request_id else {}) | {"message": message}
    if path in SHARED_WITH_VOYAGE:
        # Voyage's client reads this alone, and others pass over it.
        return document | {"detail": message}
    return document
