"""Requests of the owners of batches: of whom each is, what is read of it, and how it is refused in OpenAI's form."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from paternoster_batch.line_format import BatchApi
from paternoster_batch.runner import BatchRunner
from paternoster_batch.store import BatchRow, Conflict, Store
from paternoster_batch.upload_form import InvalidForm
from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import client_key, digest_key, matches_digest
from paternoster_http.errors.openai_errors import error_body
from paternoster_http.errors.refusal import RETRY_AFTER_SECONDS, Refusal
from paternoster_http.open_requests import charge_request, open_request_of

_TYPES = {
    400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError", 409: "ConflictError",
    413: "RequestTooLargeError", 503: "ServiceUnavailableError", 507: "InsufficientStorageError",
}  # fmt: skip

OwnerHandler = Callable[[Request, str], Awaitable[Response]]
"""Answers a request of an owner."""
Owned = Callable[[OwnerHandler], Callable[[Request], Awaitable[Response]]]


def check_owners(api_keys: KeyFiles | None) -> Owned:
    """The decorator that finds the owner of a request by its key; without ``api_keys`` all are of one owner."""

    def find_owner(request: Request) -> str:
        if api_keys is None:
            return ""
        key = client_key(request.headers)
        if not matches_digest(key, api_keys.digests):
            raise HTTPException(401, "the API key is not valid", {"WWW-Authenticate": "Bearer"})
        return digest_key(key)

    def owned(answer: OwnerHandler) -> Callable[[Request], Awaitable[Response]]:
        async def answer_owner(request: Request) -> Response:
            owner = find_owner(request)
            if owner:
                charge_request(request.scope, ("owners", owner))
            return await answer(request, owner)

        return answer_owner

    return owned


class OwnedBatches:
    """Batches of one of the APIs: routes by which their owners read and cancel one."""

    def __init__(
        self, store: Store, runner: BatchRunner, clock: Callable[[], float], api: BatchApi, kind: str,
        show: Callable[[BatchRow], dict[str, Any]],
    ) -> None:  # fmt: skip
        """``kind``: noun of the API for a batch. ``show``: makes its object."""
        self._store = store
        self._runner = runner
        self._clock = clock
        self._api = api
        self._kind = kind
        self._show = show

    async def find_batch(self, request: Request, owner: str) -> BatchRow:
        """The batch in the request's path."""
        batch = request.path_params["batch"]
        row = await asyncio.to_thread(self._store.find_batch, owner, batch, self._api)
        if row is None:
            raise not_found(self._kind, batch)
        return row

    async def get_batch(self, request: Request, owner: str) -> Response:
        return JSONResponse(self._show(await self.find_batch(request, owner)))

    async def cancel_batch(self, request: Request, owner: str) -> Response:
        batch = (await self.find_batch(request, owner)).id
        row = await asyncio.to_thread(self._store.cancel_batch, owner, batch, int(self._clock()))
        if row is None:
            raise not_found(self._kind, batch)
        self._runner.notice(batch)
        return JSONResponse(self._show(row))


async def read_upload(request: Request, runner: BatchRunner, write: Callable[[bytes], object]) -> None:
    """Write the request's body while it is read; ``write`` may raise :class:`InvalidForm`."""
    held = open_request_of(request.scope)
    async for piece in request.stream():
        if not runner.has_space():
            raise InvalidForm("the volume of files is nearly full", status=507)
        await asyncio.to_thread(write, piece)
        held.hold_body(-len(piece))


@contextmanager
def stop_refused_upload(request: Request) -> Iterator[None]:
    """Read no more of the body where it is refused: its client may still send."""
    try:
        yield
    except InvalidForm as error:
        open_request_of(request.scope).give_up(Refusal(error.status, str(error)))
        raise


def read_limit(request: Request, default: int, most: int) -> int:
    """The ``limit`` of a list."""
    text = request.query_params.get("limit", str(default))
    if not re.fullmatch("[0-9]{1,6}", text) or not 1 <= int(text) <= most:
        raise bad_request(f"limit is {text[:64]!r}: must be from 1 to {most}", "limit")
    return int(text)


async def read_page(read: Callable[..., list[Any]], *words: Any, name: str = "after", **query: Any) -> list[Any]:
    """A page behind the object that the request's field ``name`` names."""
    try:
        return await asyncio.to_thread(read, *words, **query)
    except KeyError:
        raise bad_request(f"{name} is {query['after'][:64]!r}: must be an id of this list", name) from None


def bad_request(message: str, param: str | None = None) -> InvalidForm:
    """The refusal with 400."""
    return InvalidForm(message, param)


def not_found(kind: str, name: str) -> HTTPException:
    """The refusal with 404, also where it is another owner's."""
    return HTTPException(404, f"No such {kind}: {name[:128]!r}")


async def answer_error(_: Request, error: Exception) -> Response:
    """Answer what a handler raised of :data:`ANSWERED`."""
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    message = error.detail if isinstance(error, HTTPException) else str(error)
    status = 400
    match error:
        case HTTPException():
            status = error.status_code
        case InvalidForm() | Refusal():
            status = error.status
        case Conflict():
            status, headers = 409, {"x-should-retry": "false"}  # the clients of both APIs repeat a 409
    if status == 503:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    param = error.param if isinstance(error, InvalidForm) else None
    kind = _TYPES.get(status, "BadRequestError" if status < 500 else "InternalServerError")
    return JSONResponse(error_body(status, kind, message, param=param), status, headers)


ANSWERED = (HTTPException, InvalidForm, Conflict, Refusal, ClientDisconnect)
"""Exceptions that :func:`answer_error` answers."""
