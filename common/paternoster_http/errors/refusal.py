"""Answers to malformed requests, which the server writes without calling the application."""

import json
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus

from paternoster_contract.http.headers import REQUEST_ID
from paternoster_http.errors import openai_errors
from paternoster_http.errors.anthropic_paths import is_anthropic
from paternoster_http.errors.request_id import ANTHROPIC_REQUEST_ID, request_id_of
from paternoster_http.errors.vendor_errors import vendor_body

RETRY_AFTER_SECONDS = 1
TYPES = {
    400: "BadRequestError",
    408: "RequestTimeoutError",
    413: "RequestTooLargeError",
    414: "URITooLongError",
    415: "UnsupportedMediaTypeError",
    431: "RequestHeaderFieldsTooLargeError",
    501: "NotImplementedError",
    503: "ServiceUnavailableError",
    505: "HTTPVersionNotSupportedError",
    507: "InsufficientStorageError",
}


class Refusal(Exception):
    """Ends the parsing of a request with a status of :data:`TYPES` and a text for the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    def render_response(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the whole response, in the error format of the API of ``path``; ``headers``: the request's so far."""
        request_id = request_id_of(headers)
        fields = {"date": formatdate(usegmt=True), "content-type": "application/json", REQUEST_ID.lower(): request_id}
        if is_anthropic(path):
            fields[ANTHROPIC_REQUEST_ID] = request_id
        document = openai_errors.error_body(self.status, TYPES[self.status], str(self))
        body = json.dumps(vendor_body(path, self.status, document, request_id)).encode()
        if self.status == 503:
            fields["retry-after"] = str(RETRY_AFTER_SECONDS)
        if self.status == 415:
            fields["accept-encoding"] = "identity"
        fields |= {"content-length": str(len(body)), "connection": "close"}
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}", *(f"{k}: {v}" for k, v in fields.items())]
        return "\r\n".join([*lines, "", ""]).encode() + body
