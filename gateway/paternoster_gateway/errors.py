"""Errors that the gateway answers itself, in OpenAI's body."""

import json
from typing import Any


class GatewayError(Exception):
    """An answer that comes from no engine."""

    def __init__(
        self, status: int, kind: str, message: str, *, param: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}}

    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}

    def event(self) -> bytes:
        """The error as the end of an event stream whose status has already been sent."""
        return b"data: " + json.dumps(self.body()).encode() + b"\n\ndata: [DONE]\n\n"


def bad_request(message: str, param: str | None = None) -> GatewayError:
    return GatewayError(400, "BadRequestError", message, param=param)


def unknown_model(model: str) -> GatewayError:
    return GatewayError(404, "NotFoundError", f"The model `{model}` does not exist.", param="model")


def unavailable(message: str, retry_after: int = 5) -> GatewayError:
    return GatewayError(503, "ServiceUnavailableError", message, retry_after=retry_after)
