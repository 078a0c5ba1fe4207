"""One table from each error to its response: ``{"error": {message, type, param, code}}``."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from paternoster_contract.http.headers import NOT_SERVING
from paternoster_contract.stream_journal import JOURNAL, MEDIA_TYPE
from paternoster_engine.chat.errors import ChatTemplateError, RendererLost
from paternoster_engine.core.errors import (
    NeverFits,
    PromptTooLong,
    QueueFull,
    QueueTooSlow,
    TenantQueueFull,
    TenantRateExceeded,
    TooManySequences,
)
from paternoster_engine.sampling.grammars.errors import GrammarProcessLost, GrammarQueueFull
from paternoster_engine.server.access.identity import tenant_of
from paternoster_engine.server.bodies.invalid_fields import describe_errors
from paternoster_engine.server.errors import (
    MAX_SHOWN,
    AdapterUnavailable,
    ClientGone,
    CorruptedOutput,
    DeadlineExceeded,
    Draining,
    Ending,
    EngineEnding,
    GrammarTooComplex,
    HandOverRequired,
    InvalidAdapter,
    InvalidValue,
    Loading,
    NothingAllowed,
    OtherNumerics,
    StepFailed,
    TextQueueFull,
    UnknownModel,
    WrongTask,
)
from paternoster_engine.server.loop import LoopStopped
from paternoster_http.errors.openai_errors import CONTEXT_LENGTH_EXCEEDED, MODEL_NOT_FOUND, error_body
from paternoster_http.json_bounds import JsonTooLarge

MAX_MESSAGE = 4000
"""Most characters of a message, whatever it is made of."""
CLIENT_CLOSED_REQUEST = 499
"""nginx's status for a response whose client has gone."""

SHOULD_RETRY = "x-should-retry"
"""Overrules what OpenAI's SDKs make of a status."""


class ErrorResponse(NamedTuple):
    status: int
    type: str
    param: str | None = None
    retry_after: int | None = None
    """Seconds; SDKs that retry honour it."""
    final: bool = False
    """Sending it again is of no use, although the status says that it may be."""
    code: str | None = None
    """OpenAI's name of it; None: that of the status, where it has one."""
    not_serving: str | None = None
    """Why the engine takes no request at all for now, for the gateway; None where it refuses this one."""


TABLE: Mapping[type[Exception], ErrorResponse] = {
    PromptTooLong: ErrorResponse(400, "BadRequestError", code=CONTEXT_LENGTH_EXCEEDED),
    NeverFits: ErrorResponse(400, "BadRequestError"),
    TooManySequences: ErrorResponse(400, "BadRequestError"),
    ChatTemplateError: ErrorResponse(400, "BadRequestError", "messages"),
    InvalidValue: ErrorResponse(400, "BadRequestError"),
    # As vLLM has it.
    InvalidAdapter: ErrorResponse(400, "InvalidUserInput"),
    WrongTask: ErrorResponse(400, "BadRequestError", "model"),
    GrammarTooComplex: ErrorResponse(400, "BadRequestError"),
    NothingAllowed: ErrorResponse(400, "BadRequestError"),
    JsonTooLarge: ErrorResponse(400, "BadRequestError"),
    UnknownModel: ErrorResponse(404, "NotFoundError", "model", code=MODEL_NOT_FOUND),
    AdapterUnavailable: ErrorResponse(503, "ServiceUnavailableError", "model"),
    Ending: ErrorResponse(409, "ConflictError"),
    OtherNumerics: ErrorResponse(412, "PreconditionFailedError"),
    ClientGone: ErrorResponse(CLIENT_CLOSED_REQUEST, "ClientClosedRequest"),
    StepFailed: ErrorResponse(500, "InternalServerError"),
    CorruptedOutput: ErrorResponse(500, "InternalServerError", final=True),
    TenantQueueFull: ErrorResponse(429, "RateLimitError", retry_after=1),
    TenantRateExceeded: ErrorResponse(429, "RateLimitError"),
    DeadlineExceeded: ErrorResponse(504, "DeadlineExceededError", "deadline_ms", final=True),
    QueueFull: ErrorResponse(503, "Service Unavailable", retry_after=1),
    QueueTooSlow: ErrorResponse(503, "Service Unavailable"),
    TextQueueFull: ErrorResponse(503, "ServiceUnavailableError", retry_after=1),
    RendererLost: ErrorResponse(503, "ServiceUnavailableError", retry_after=1),
    GrammarQueueFull: ErrorResponse(503, "ServiceUnavailableError", retry_after=1),
    GrammarProcessLost: ErrorResponse(503, "ServiceUnavailableError", retry_after=1),
    Loading: ErrorResponse(503, "ServiceUnavailableError", retry_after=5, not_serving="loading"),
    Draining: ErrorResponse(503, "ServiceUnavailableError", retry_after=1, not_serving="draining"),
    EngineEnding: ErrorResponse(503, "ServiceUnavailableError", retry_after=1, not_serving="ending"),
    LoopStopped: ErrorResponse(503, "ServiceUnavailableError", retry_after=1, not_serving="stopped"),
}


PACED = (QueueFull, QueueTooSlow, TenantQueueFull, TenantRateExceeded)
"""Refusals that cost more than a client's next try."""


class ErrorObject(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Every response that is none of 2xx."""

    error: ErrorObject


_DESCRIPTIONS: dict[int | str, str] = {
    400: "the body is no JSON, or a field is not what it may be: `param` names it",
    401: "the key is missing or wrong",
    404: "no such model",
    413: "the body is too large",
    429: "a limit of this tenant is reached",
    499: "the client was gone",
    500: "the engine failed",
    503: "the engine loads, drains or is busy: try again later or elsewhere",
    504: "the deadline passed",
    # With this one fastapi writes no 422 of its own, which is never sent.
    "default": "anything else",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": description} for status, description in _DESCRIPTIONS.items()
}
"""Failures in the OpenAPI document."""


def describe_error(error: Exception) -> tuple[ErrorResponse, dict[str, Any]]:
    """The response to ``error`` and its body; an error that the table does not know is a fault of the server."""
    response = TABLE.get(type(error), ErrorResponse(500, "InternalServerError"))
    message = str(error) if type(error) in TABLE else "Internal server error"
    param = error.field if isinstance(error, InvalidValue) else response.param
    body = error_body(response.status, response.type, message[:MAX_MESSAGE], param=param, code=response.code)
    return response, body


def error_response(error: Exception) -> JSONResponse:
    response, body = describe_error(error)
    retry_after = error.retry_after if isinstance(error, (QueueTooSlow, TenantRateExceeded)) else response.retry_after
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    if response.final:
        headers[SHOULD_RETRY] = "false"
    if response.not_serving is not None:
        headers[NOT_SERVING] = response.not_serving
    return JSONResponse(body, response.status, headers)


def install_handlers(app: FastAPI) -> None:
    """Make every error of ``app`` an OpenAI error body."""

    async def respond_to_known_error(request: Request, error: Exception) -> JSONResponse:
        if isinstance(error, PACED):
            await app.state.reading_shares.pace_refusal(tenant_of(request))
        return error_response(error)

    async def respond_to_invalid_body(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return _invalid_body(request.headers.get("content-type", ""), error.errors(), error.body)

    async def answer_http_error(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        phrase = HTTPStatus(error.status_code).phrase
        message = _body_fault(error.__cause__) or error.detail
        body = error_body(error.status_code, phrase, message[:MAX_MESSAGE])
        return JSONResponse(body, error.status_code, error.headers)

    async def hand_over(_: Request, error: Exception) -> Response:
        assert isinstance(error, HandOverRequired)
        if error.failed:
            return Response(error.journal, 500, {JOURNAL: error.numerics}, media_type=MEDIA_TYPE)
        headers = {JOURNAL: error.numerics, NOT_SERVING: "draining"}
        return Response(error.journal, 503, headers, media_type=MEDIA_TYPE)

    app.add_exception_handler(HandOverRequired, hand_over)
    for kind in (*TABLE, Exception):
        app.add_exception_handler(kind, respond_to_known_error)
    app.add_exception_handler(RequestValidationError, respond_to_invalid_body)
    app.add_exception_handler(HTTPException, answer_http_error)


def _body_fault(cause: BaseException | None) -> str | None:
    """Why a body could not be read, where that is more than that its JSON is wrong."""
    match cause:
        case JsonTooLarge():
            return str(cause)
        case RecursionError():
            return "The body is nested too deeply"
        case UnicodeDecodeError():
            return "The body is not UTF-8"
        case ValueError():
            return f"The body is not valid JSON: {str(cause)[:MAX_SHOWN]}"
    return None


def _invalid_body(content_type: str, errors: Sequence[Mapping[str, Any]], body: Any) -> JSONResponse:
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != "application/json":
        message, param = "Unsupported Media Type: Only 'application/json' is allowed", None
    elif errors[0]["type"] == "json_invalid":
        message, param = f"The body is not valid JSON: {errors[0].get('ctx', {}).get('error', 'cannot decode')}", None
    else:
        message, param = describe_errors(errors, body)
    return JSONResponse(error_body(400, "BadRequestError", message[:MAX_MESSAGE], param=param), 400)
