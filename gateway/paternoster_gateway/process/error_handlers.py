"""What the gateway's application itself answers to unknown paths and methods, and after a fault."""

from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from paternoster_gateway.errors import GatewayError


def install_error_handlers(app: FastAPI) -> None:
    """Have ``app`` answer unknown paths and methods, and its own faults, with an OpenAI error body."""

    async def answer_refusal(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        refusal = GatewayError(error.status_code, _error_type(error.status_code), error.detail)
        return JSONResponse(refusal.to_body(), refusal.status, error.headers)

    async def answer_fault(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse(GatewayError(500, "InternalServerError", "Internal server error").to_body(), 500)

    app.add_exception_handler(HTTPException, answer_refusal)
    app.add_exception_handler(Exception, answer_fault)


def _error_type(status: int) -> str:
    return {404: "NotFoundError", 405: "MethodNotAllowedError"}.get(status, HTTPStatus(status).phrase)
