"""The Batch APIs over HTTP, and OpenAI's routes and objects: each for the owner of the key that a request has."""

import asyncio
import json
import re
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from paternoster_batch.completion_window import parse_window
from paternoster_batch.input_file import ENDPOINTS
from paternoster_batch.line_format import BatchApi
from paternoster_batch.message_requests import MAX_BODY_BYTES
from paternoster_batch.message_routes import build_message_routes
from paternoster_batch.owner_requests import (
    ANSWERED,
    Owned,
    OwnedBatches,
    answer_error,
    bad_request,
    check_owners,
    not_found,
    read_limit,
    read_page,
    read_upload,
    stop_refused_upload,
)
from paternoster_batch.runner import BatchRunner
from paternoster_batch.store import BatchRow, FileRow, Store
from paternoster_batch.upload_form import MAX_FORM_BYTES, PURPOSE, UploadForm
from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.http import paths
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_http.errors.request_id import RequestId
from paternoster_http.errors.unforeseen import UnforeseenErrors
from paternoster_http.json_bounds import JsonTooLarge, bounded_json
from paternoster_http.request_line import CanonicalRequestLine
from paternoster_http.vendor_rewriting import VendorErrors

LIMITS = HttpLimits(max_body_bytes=max(MAX_FORM_BYTES, MAX_BODY_BYTES))
"""Limits of the port; what is read of an upload is written at once, and held no more."""
MAX_JSON_BYTES = 64 * 2**10
"""Limit for a body that is no upload."""
MAX_FILES_LISTED = 10_000
MAX_BATCHES_LISTED = 100
DEFAULT_BATCHES_LISTED = 20


class NewBatch(BaseModel):
    """The body of ``POST /v1/batches``."""

    model_config = ConfigDict(extra="forbid")

    input_file_id: str = Field(max_length=128)
    endpoint: Literal[ENDPOINTS]  # type: ignore[valid-type]
    completion_window: str
    metadata: (
        Annotated[
            dict[Annotated[str, StringConstraints(max_length=64)], Annotated[str, StringConstraints(max_length=512)]],
            Field(max_length=16),
        ]
        | None
    ) = None


class BatchChange(BaseModel):
    """The body of ``PATCH /v1/batches/{id}``, which OpenAI's API lacks."""

    model_config = ConfigDict(extra="forbid")

    completion_window: str


_Body = TypeVar("_Body", bound=BaseModel)


def create_app(
    store: Store, runner: BatchRunner, api_keys: KeyFiles | None = None, clock: Callable[[], float] = time.time
) -> Starlette:
    """The routes of both APIs over ``store``; ``runner`` gets what changes for it.

    ``api_keys``: of clients, each an owner of its own by its digest; without them all requests are of one owner.
    """

    async def check_health(_: Request) -> Response:
        return Response(status_code=200)

    owned = check_owners(api_keys)
    return Starlette(
        routes=[
            *build_openai_routes(store, runner, owned, clock),
            *build_message_routes(store, runner, owned, clock),
            Route(paths.HEALTH, check_health),
            Route(paths.READY, check_health),
        ],
        middleware=[
            Middleware(CanonicalRequestLine), Middleware(RequestId), Middleware(VendorErrors),
            Middleware(UnforeseenErrors),
        ],
        exception_handlers=dict.fromkeys(ANSWERED, answer_error),
    )  # fmt: skip


def build_openai_routes(store: Store, runner: BatchRunner, owned: Owned, clock: Callable[[], float]) -> list[Route]:
    """The routes of files and batches."""
    batches = OwnedBatches(store, runner, clock, BatchApi.OPENAI, "batch", show_batch)

    async def upload_file(request: Request, owner: str) -> Response:
        upload = await asyncio.to_thread(store.begin_upload, owner, int(clock()))
        try:
            with stop_refused_upload(request):
                form = UploadForm(request.headers.get("content-type", ""), upload)
                await read_upload(request, runner, form.feed)
                return JSONResponse(show_file(await asyncio.to_thread(form.finish)))
        finally:
            await asyncio.to_thread(upload.discard)

    async def list_files(request: Request, owner: str) -> Response:
        query = request.query_params
        order = query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise bad_request(f"order is {order[:64]!r}: must be asc or desc", "order")
        limit = read_limit(request, MAX_FILES_LISTED, MAX_FILES_LISTED)
        rows = await read_page(
            store.list_files, owner, purpose=query.get("purpose"), after=query.get("after"), limit=limit + 1,
            newest_first=order == "desc",
        )  # fmt: skip
        return _show_list([show_file(row) for row in rows], limit)

    async def get_file(request: Request, owner: str) -> Response:
        return JSONResponse(show_file(await find_file(request, owner)))

    async def get_content(request: Request, owner: str) -> Response:
        row = await find_file(request, owner)
        return FileResponse(store.path_of(row.id), media_type="application/octet-stream", filename=row.filename)

    async def delete_file(request: Request, owner: str) -> Response:
        file = request.path_params["file"]
        if not await asyncio.to_thread(store.delete_file, owner, file):
            raise not_found("file", file)
        return JSONResponse({"id": file, "object": "file", "deleted": True})

    async def create_batch(request: Request, owner: str) -> Response:
        wanted = await _read_json(request, NewBatch)
        seconds = _read_window(wanted.completion_window)
        file = await asyncio.to_thread(store.find_file, owner, wanted.input_file_id)
        if file is not None and file.purpose != PURPOSE:
            message = f"input_file_id is {file.id!r}: its purpose is {file.purpose}, must be {PURPOSE}"
            raise bad_request(message, "input_file_id")
        now = int(clock())
        metadata = None if wanted.metadata is None else json.dumps(wanted.metadata)
        row = await asyncio.to_thread(
            store.create_batch, owner, endpoint=wanted.endpoint, file=wanted.input_file_id,
            window=wanted.completion_window, expires_at=now + seconds, metadata=metadata, now=now,
        )  # fmt: skip
        if row is None:
            raise not_found("file", wanted.input_file_id)
        runner.notice()
        return JSONResponse(show_batch(row))

    async def list_batches(request: Request, owner: str) -> Response:
        limit = read_limit(request, DEFAULT_BATCHES_LISTED, MAX_BATCHES_LISTED)
        rows = await read_page(store.list_batches, owner, after=request.query_params.get("after"), limit=limit + 1)
        return _show_list([show_batch(row) for row in rows], limit)

    async def change_batch(request: Request, owner: str) -> Response:
        window = (await _read_json(request, BatchChange)).completion_window
        seconds, batch = _read_window(window), await batches.find_batch(request, owner)
        if batch.created_at + seconds <= clock():
            raise bad_request(
                f"completion_window is {window!r}: it would be over, {batch.id} is older", "completion_window"
            )
        row = await asyncio.to_thread(store.change_window, owner, batch.id, window, seconds)
        if row is None:
            raise not_found("batch", batch.id)
        runner.notice(row.id)
        return JSONResponse(show_batch(row))

    async def get_results(request: Request, owner: str) -> Response:
        row = await batches.find_batch(request, owner)
        after = request.query_params.get("after", "0")
        if not re.fullmatch("[0-9]{1,9}", after):
            raise bad_request(f"after is {after[:64]!r}: must be how many results are passed over", "after")
        return StreamingResponse(store.read_results(row, int(after)), media_type="application/jsonl")

    async def find_file(request: Request, owner: str) -> FileRow:
        file = request.path_params["file"]
        row = await asyncio.to_thread(store.find_file, owner, file)
        if row is None:
            raise not_found("file", file)
        return row

    return [
        Route("/v1/files", owned(upload_file), methods=["POST"]),
        Route("/v1/files", owned(list_files)),
        Route("/v1/files/{file}", owned(get_file)),
        Route("/v1/files/{file}", owned(delete_file), methods=["DELETE"]),
        Route("/v1/files/{file}/content", owned(get_content)),
        Route("/v1/batches", owned(create_batch), methods=["POST"]),
        Route("/v1/batches", owned(list_batches)),
        Route("/v1/batches/{batch}", owned(batches.get_batch)),
        Route("/v1/batches/{batch}", owned(change_batch), methods=["PATCH"]),
        Route("/v1/batches/{batch}/cancel", owned(batches.cancel_batch), methods=["POST"]),
        Route("/v1/batches/{batch}/results", owned(get_results)),
    ]


def _read_window(text: str) -> int:
    try:
        return parse_window(text)
    except ValueError as error:
        raise bad_request(f"completion_window is {error}", "completion_window") from None


def show_file(row: FileRow) -> dict[str, Any]:
    """OpenAI's File."""
    shown = {"id": row.id, "object": "file", "bytes": row.bytes, "created_at": row.created_at}
    return shown | {"filename": row.filename, "purpose": row.purpose, "status": "processed"}


def show_batch(row: BatchRow) -> dict[str, Any]:
    """OpenAI's Batch."""
    times = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
    return {
        "id": row.id,
        "object": "batch",
        "endpoint": row.endpoint,
        "model": row.model,
        "errors": None if row.errors is None else {"object": "list", "data": json.loads(row.errors)},
        "input_file_id": row.input_file_id,
        "completion_window": row.completion_window,
        "status": row.status,
        "output_file_id": row.output_file_id,
        "error_file_id": row.error_file_id,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        **{f"{name}_at": getattr(row, f"{name}_at") for name in times},
        "request_counts": {"total": row.total, "completed": row.completed, "failed": row.failed},
        "usage": {
            "input_tokens": row.input_tokens,
            "input_tokens_details": {"cached_tokens": row.cached_tokens},
            "output_tokens": row.output_tokens,
            "output_tokens_details": {"reasoning_tokens": row.reasoning_tokens},
            "total_tokens": row.input_tokens + row.output_tokens,
        },
        "metadata": None if row.metadata is None else json.loads(row.metadata),
    }


def _show_list(shown: list[dict[str, Any]], limit: int) -> Response:
    """A page of at most ``limit`` objects, of which one more was read."""
    page = shown[:limit]
    ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
    return JSONResponse({"object": "list", "data": page, **ends, "has_more": len(shown) > limit})


async def _read_json(request: Request, model: type[_Body]) -> _Body:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_JSON_BYTES:
            raise HTTPException(413, f"The body is longer than {MAX_JSON_BYTES} bytes.")
    try:
        return model.model_validate(bounded_json(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(map(str, first["loc"]))[:64]
        raise bad_request(f"{name or 'the body'}: {first['msg']}", name or None) from None
    except (JsonTooLarge, ValueError) as error:
        raise bad_request(f"the body is not JSON: {error}"[:1000]) from None
