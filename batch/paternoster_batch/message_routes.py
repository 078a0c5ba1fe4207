"""Anthropic's Message Batches over HTTP: routes and objects. Errors are put in Anthropic's form by the middleware."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from paternoster_batch.gateway_client import TryLater
from paternoster_batch.input_file import READ_BYTES
from paternoster_batch.line_format import BatchApi
from paternoster_batch.message_requests import MAX_BODY_BYTES, InvalidRequests, MessageRequests
from paternoster_batch.owner_requests import (
    Owned,
    OwnedBatches,
    bad_request,
    not_found,
    read_limit,
    read_page,
    read_upload,
    stop_refused_upload,
)
from paternoster_batch.runner import BatchRunner
from paternoster_batch.store import OPEN, BatchRow, BatchStatus, Store
from paternoster_batch.upload_form import InvalidForm
from paternoster_http.errors.anthropic_paths import PATH as ENDPOINT

ROOT = f"{ENDPOINT}/batches"
WINDOW, WINDOW_SECONDS = "24h", 86_400
"""Anthropic's, of every batch."""
DEFAULT_LISTED, MOST_LISTED = 20, 1000
MODEL_CHECK_SECONDS = 30.0
"""Time in which the gateway must answer for the models of a new batch, whose client waits."""


def build_message_routes(store: Store, runner: BatchRunner, owned: Owned, clock: Callable[[], float]) -> list[Route]:
    """The routes over ``store``; ``runner`` gets what changes for it."""
    batches = OwnedBatches(store, runner, clock, BatchApi.ANTHROPIC, "message batch", show_message_batch)
    validating = asyncio.Lock()

    async def create_batch(request: Request, owner: str) -> Response:
        now = int(clock())
        upload = await asyncio.to_thread(store.begin_upload, owner, now)

        def write(piece: bytes) -> None:
            if upload.size + len(piece) > MAX_BODY_BYTES:
                raise InvalidForm(f"the body is longer than {MAX_BODY_BYTES} bytes", status=413)
            upload.write(piece)

        try:
            with stop_refused_upload(request):
                await read_upload(request, runner, write)
            async with validating:  # one body at a time
                requests = await asyncio.to_thread(MessageRequests.read, upload.read_pieces(READ_BYTES))
            async with asyncio.timeout(MODEL_CHECK_SECONDS):
                await check_models(owner, requests)
            row = await asyncio.to_thread(
                store.create_message_batch, owner, upload, requests.lines, endpoint=ENDPOINT, window=WINDOW,
                expires_at=now + WINDOW_SECONDS, now=now,
            )  # fmt: skip
        except InvalidRequests as error:
            raise bad_request(str(error)) from None
        except TimeoutError:
            raise HTTPException(503, "the models cannot be checked yet: the gateway does not answer") from None
        finally:
            await asyncio.to_thread(upload.discard)
        runner.notice()
        return JSONResponse(show_message_batch(row))

    async def check_models(owner: str, requests: MessageRequests) -> None:
        faults = []
        for model, place in requests.models.items():
            refusal = await runner.check_model(owner, model)
            if isinstance(refusal, TryLater):
                raise HTTPException(503, f"the models cannot be checked yet: {refusal.reason}"[:1000])
            if refusal is not None:
                faults.append(refusal.describe(f"requests.{place}.params.model"))
        if faults:
            raise InvalidRequests("; ".join(faults))

    async def list_batches(request: Request, owner: str) -> Response:
        limit = read_limit(request, DEFAULT_LISTED, MOST_LISTED)
        after, before = (request.query_params.get(name) for name in ("after_id", "before_id"))
        if after is not None and before is not None:
            raise bad_request("after_id and before_id: a page has one of them")
        rows = await read_page(
            store.list_batches, owner, BatchApi.ANTHROPIC, name="after_id" if before is None else "before_id",
            after=after if before is None else before, limit=limit + 1, newest_first=before is None,
        )  # fmt: skip
        has_more = len(rows) > limit
        page = rows[:limit] if before is None else rows[:limit][::-1]
        ends = {"first_id": page[0].id if page else None, "last_id": page[-1].id if page else None}
        return JSONResponse({"data": [show_message_batch(row) for row in page], "has_more": has_more, **ends})

    async def get_results(request: Request, owner: str) -> Response:
        row = await batches.find_batch(request, owner)
        if row.status in OPEN:
            status = show_message_batch(row)["processing_status"]
            raise HTTPException(404, f"{row.id} is {status}: it has results once it has ended")
        return StreamingResponse(store.read_in_order(row), media_type="application/x-jsonl")

    async def delete_batch(request: Request, owner: str) -> Response:
        batch = request.path_params["batch"]
        if not await asyncio.to_thread(store.delete_batch, owner, batch):
            raise not_found("message batch", batch)
        return JSONResponse({"id": batch, "type": "message_batch_deleted"})

    return [
        Route(ROOT, owned(create_batch), methods=["POST"]),
        Route(ROOT, owned(list_batches)),
        Route(f"{ROOT}/{{batch}}", owned(batches.get_batch)),
        Route(f"{ROOT}/{{batch}}", owned(delete_batch), methods=["DELETE"]),
        Route(f"{ROOT}/{{batch}}/results", owned(get_results)),
        Route(f"{ROOT}/{{batch}}/cancel", owned(batches.cancel_batch), methods=["POST"]),
    ]


def show_message_batch(row: BatchRow) -> dict[str, Any]:
    """Anthropic's MessageBatch; its counts are those of the end, and until then all requests are processing."""
    is_open = row.status in OPEN
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    if is_open:
        counts["processing"] = row.total
    else:
        unanswered = "expired" if row.status == BatchStatus.EXPIRED else "canceled"
        counts |= {"succeeded": row.completed, "errored": row.failed - row.unanswered, unanswered: row.unanswered}
    status = "ended" if not is_open else "canceling" if row.status == BatchStatus.CANCELLING else "in_progress"
    return {
        "id": row.id,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": counts,
        "created_at": _show_time(row.created_at),
        "expires_at": _show_time(row.expires_at),
        "ended_at": _show_time(row.completed_at or row.expired_at or row.cancelled_at),
        "cancel_initiated_at": _show_time(row.cancelling_at),
        "archived_at": None,
        # Without a host: behind a proxy that ends TLS it would be another one than the client's.
        "results_url": None if is_open else f"{ROOT}/{row.id}/results",
    }


def _show_time(seconds: int | None) -> str | None:
    """The time in the form of RFC 3339."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
