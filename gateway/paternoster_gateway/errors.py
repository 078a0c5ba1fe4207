"""Errors that the gateway itself answers, as OpenAI's bodies; :mod:`paternoster_http.errors` makes Anthropic's."""

import json
from collections.abc import Sequence
from typing import Any

from paternoster_http.errors import anthropic_errors, openai_errors
from paternoster_http.errors.anthropic_paths import is_anthropic

MAX_SHOWN = 200
"""Most characters of a refused value shown in an answer."""
CLIENT_GONE = 499
"""nginx's status for a request whose client has left."""
MAX_LISTED = 20
"""Most names of models that one answer lists."""


class GatewayError(Exception):
    """An answer that comes from no engine."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
        code: str | None = None,
        final: bool = False,
    ) -> None:
        """``final``: sending the request again is of no use, although the status states that it may be."""
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.retry_after = retry_after
        self.code = code
        self.final = final

    def to_body(self) -> dict[str, Any]:
        return openai_errors.error_body(self.status, self.kind, str(self), param=self.param, code=self.code)

    def to_headers(self) -> dict[str, str]:
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        if self.final:
            headers["x-should-retry"] = "false"
        return headers

    def encode_event(self, path: str) -> bytes:
        """The error as the end of an event stream of ``path``, whose status has already been sent."""
        if is_anthropic(path):
            body = anthropic_errors.error_body(self.status, str(self))
            return b"event: error\ndata: " + json.dumps(body).encode() + b"\n\n"
        return b"data: " + json.dumps(self.to_body()).encode() + b"\n\ndata: [DONE]\n\n"


def error_of_answer(status: int, body: bytes) -> GatewayError:
    """An engine's answer with an error ``status`` and ``body``, in the form of OpenAI's API, or of Anthropic's."""
    try:
        error = json.loads(body)["error"]
        fields = {name: error.get(name) for name in ("message", "type", "param", "code")}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        fields = {}
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    message = texts.get("message", f"The engine answered with status {status}.")
    kind = texts.get("type", "api_error")
    return GatewayError(status, kind, message, param=texts.get("param"), code=texts.get("code"))


def bad_request(message: str, param: str | None = None) -> GatewayError:
    return GatewayError(400, "BadRequestError", message, param=param)


def model_needed(names: Sequence[str]) -> GatewayError:
    """For a request that names no model, where its key opens the models ``names``."""
    shown = ", ".join(f"`{name[:MAX_SHOWN]}`" for name in names[:MAX_LISTED])
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    choice = f"one of {shown}{more}" if names else "and none is served now"
    return bad_request(f"`model` must be given: {choice}.", "model")


def unknown_model(model: str) -> GatewayError:
    message = f"The model `{model[:MAX_SHOWN]}` does not exist."
    return GatewayError(404, "NotFoundError", message, param="model", code=openai_errors.MODEL_NOT_FOUND)


def client_gone() -> GatewayError:
    """For the metrics alone: the client has left."""
    return GatewayError(CLIENT_GONE, "ClientClosedRequest", "The client closed its request.")


def unauthorized_error() -> GatewayError:
    return GatewayError(401, "AuthenticationError", "Missing or wrong key in the Authorization or X-Api-Key header.")


def expired_key_error() -> GatewayError:
    return GatewayError(401, "AuthenticationError", "The key has expired.")


def unavailable_error(message: str, retry_after: int = 5) -> GatewayError:
    return GatewayError(503, "ServiceUnavailableError", message, retry_after=retry_after)


def too_many(message: str, retry_after: int) -> GatewayError:
    """For a request beyond those that may wait, or that no replica would get in time."""
    return GatewayError(429, "RateLimitError", message, retry_after=retry_after)


def deadline_passed(message: str) -> GatewayError:
    return GatewayError(504, "DeadlineExceededError", message, param="deadline_ms", final=True)


def route_unread(model: str) -> GatewayError:
    """For a model whose route the operator has not read yet, and of which this gateway has no earlier one."""
    return unavailable_error(f"The operator could not read the route of `{model}` yet; send the request again.", 1)


def another_fleet(model: str) -> GatewayError:
    """For a held request: its model's name has passed to another fleet since it came."""
    return unavailable_error(f"`{model}` became the name of another fleet while the request waited; send it again.", 1)


def keys_refused(model: str, replicas: int) -> GatewayError:
    """For an engine's 401, which concerns the gateway's key and not the client's."""
    return unavailable_error(
        f"{replicas} replicas of `{model}` refused the gateway's key. Operators: the gateway's log names them; "
        "see that its --engine-key and the keys of the fleet's engines come from one root."
    )
