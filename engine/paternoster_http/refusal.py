"""Answers to requests that never become any: written before an application is asked."""

import json
from http import HTTPStatus

from paternoster_http.openai_errors import error_body

RETRY_AFTER_SECONDS = 1
TYPES = {
    400: "BadRequestError",
    408: "RequestTimeoutError",
    413: "RequestTooLargeError",
    414: "URITooLongError",
    431: "RequestHeaderFieldsTooLargeError",
    503: "ServiceUnavailableError",
}


class Refusal(Exception):
    """Ends the parsing of a request with a status of :data:`TYPES` and a text for the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    def answer(self) -> bytes:
        """The whole answer, in OpenAI's error body."""
        body = json.dumps(error_body(self.status, TYPES[self.status], str(self))).encode()
        retry = f"retry-after: {RETRY_AFTER_SECONDS}\r\n" if self.status == 503 else ""
        head = (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{retry}connection: close\r\n\r\n"
        )
        return head.encode() + body
