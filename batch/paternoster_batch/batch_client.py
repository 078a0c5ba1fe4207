"""Requests to a batch service for a user's command: what the service answers is bounded and validated."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, BinaryIO, Self, TypeVar
from urllib.parse import quote

import aiohttp
from pydantic import BaseModel, ValidationError

from paternoster_batch.store import BatchStatus
from paternoster_batch.upload_form import PURPOSE
from paternoster_http.bounded_answers import READ_BUFFER, bounded_connector
from paternoster_http.json_bounds import JsonTooLarge, bounded_json

MAX_ANSWER_BYTES = 8 * 2**20
"""Limit for an answer that is no file; 20 batches with all the errors that one may have are 2 MiB."""
BATCHES_AT_ONCE = 20
CONNECT_SECONDS, SILENT_SECONDS = 5, 120
LONGEST_MESSAGE = 1000
"""Characters of the service's message in an error."""


class ServiceError(Exception):
    """The service refuses a request; the text is for the user of the command."""


class ServiceUnavailable(ServiceError):
    """The service cannot be reached, or may answer otherwise later."""


class ReportedError(BaseModel):
    """An error in an input file; without a line it is one of the whole file."""

    code: str | None = None
    message: str
    line: int | None = None


class ReportedErrors(BaseModel):
    """Errors of a batch that failed."""

    data: list[ReportedError] = []


class ReportedCounts(BaseModel):
    """Lines of a batch."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class ReportedUsage(BaseModel):
    """Tokens of a batch."""

    total_tokens: int = 0


class ReportedBatch(BaseModel):
    """Fields of OpenAI's Batch that commands show."""

    id: str
    status: BatchStatus
    endpoint: str
    model: str | None = None
    created_at: int
    completion_window: str
    errors: ReportedErrors | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    request_counts: ReportedCounts = ReportedCounts()
    usage: ReportedUsage = ReportedUsage()


class ReportedPage(BaseModel):
    """A page of a list of batches."""

    data: list[ReportedBatch]
    has_more: bool


class ReportedFile(BaseModel):
    """A file that the service has."""

    id: str


_Answer = TypeVar("_Answer", bound=BaseModel)


class BatchClient:
    """Sends requests to one service. Use as an async context manager; methods raise :class:`ServiceError`."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=bounded_connector(), read_bufsize=READ_BUFFER, headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=SILENT_SECONDS),
        )  # fmt: skip
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._session.close()

    async def upload_file(self, name: str, opened: BinaryIO) -> ReportedFile:
        """Upload the input file of a batch."""
        form = aiohttp.FormData()
        form.add_field("purpose", PURPOSE)
        form.add_field("file", opened, filename=name, content_type="application/jsonl")
        return await self._request(ReportedFile, "POST", "/v1/files", data=form)

    async def create_batch(self, file: ReportedFile, endpoint: str, window: str) -> ReportedBatch:
        new = {"input_file_id": file.id, "endpoint": endpoint, "completion_window": window}
        return await self._request(ReportedBatch, "POST", "/v1/batches", json=new)

    async def find_batch(self, batch: str) -> ReportedBatch:
        return await self._request(ReportedBatch, "GET", f"/v1/batches/{quote(batch, safe='')}")

    async def cancel_batch(self, batch: str) -> ReportedBatch:
        return await self._request(ReportedBatch, "POST", f"/v1/batches/{quote(batch, safe='')}/cancel")

    async def list_batches(self, limit: int) -> list[ReportedBatch]:
        """The newest ``limit`` of them, the newest first."""
        batches: list[ReportedBatch] = []
        while len(batches) < limit:
            query = {"limit": min(BATCHES_AT_ONCE, limit - len(batches))}
            after = {"after": batches[-1].id} if batches else {}
            page = await self._request(ReportedPage, "GET", "/v1/batches", params={**query, **after})
            batches += page.data
            if not page.has_more or not page.data:
                break
        return batches

    def read_results(self, batch: str, after: int) -> AsyncIterator[bytes]:
        """Pieces of the results behind the first ``after``, in the order in which they came."""
        return self._read_pieces(f"/v1/batches/{quote(batch, safe='')}/results", {"after": after})

    def read_file(self, file: str) -> AsyncIterator[bytes]:
        """Pieces of a file's content."""
        return self._read_pieces(f"/v1/files/{quote(file, safe='')}/content", {})

    async def _read_pieces(self, path: str, query: dict[str, int]) -> AsyncIterator[bytes]:
        async with self._open("GET", path, params=query) as answer:
            async for piece in answer.content.iter_any():
                yield piece

    async def _request(self, model: type[_Answer], method: str, path: str, **request: Any) -> _Answer:
        async with self._open(method, path, **request) as answer:
            try:
                return model.model_validate(await _read_json(answer))
            except (JsonTooLarge, ValueError) as error:
                reason = _first_error(error) if isinstance(error, ValidationError) else str(error)
                message = f"the answer to {method} {path} is none of a batch service: {reason}"
                raise ServiceError(message[:LONGEST_MESSAGE]) from None

    @asynccontextmanager
    async def _open(self, method: str, path: str, **request: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._session.request(method, self._url + path, allow_redirects=False, **request) as answer:
                if answer.status != 200:
                    refusal = ServiceUnavailable if answer.status in (429, 502, 503, 504) else ServiceError
                    raise refusal(f"{await _read_message(answer)} (status {answer.status})")
                yield answer
        except (aiohttp.ClientError, TimeoutError) as error:
            text = str(error) or type(error).__name__
            raise ServiceUnavailable(f"{self._url}: {text}"[:LONGEST_MESSAGE]) from None


async def _read_json(answer: aiohttp.ClientResponse) -> Any:
    pieces, size = [], 0
    async for piece in answer.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            raise ValueError(f"it is longer than {MAX_ANSWER_BYTES} bytes")
    return bounded_json(b"".join(pieces), "it")


async def _read_message(answer: aiohttp.ClientResponse) -> str:
    """The message of an error in OpenAI's form; else that the answer has none."""
    try:
        return str((await _read_json(answer))["error"]["message"])[:LONGEST_MESSAGE]
    except (JsonTooLarge, ValueError, LookupError, TypeError):
        return "refused without a message"


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
