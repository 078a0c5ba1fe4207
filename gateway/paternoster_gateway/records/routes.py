"""``GET /debug/requests``: what became of the calls of this gateway, for who has the gateways' root key."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import (
    READER_TO_GATEWAY,
    client_key,
    derive_key,
    digest_key,
    matches_digest,
)
from paternoster_contract.http import paths
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.records.call_record import CallRecords

MOST_LISTED = 100
"""Records in one answer."""
DEFAULT_LISTED = 10
LONGEST_ID = 128
"""Characters of an id, as of those that the gateway takes from a client."""


def build_record_routes(records: CallRecords, roots: KeyFiles | None) -> list[Route]:
    """The routes of records. Without ``roots`` a gateway sends no keys and asks for none here."""

    def refuse_caller(request: Request) -> Response | None:
        if roots is None:
            return None
        digests = [digest_key(derive_key(root, READER_TO_GATEWAY)) for root in roots.keys]
        if matches_digest(client_key(request.headers), digests):
            return None
        return _write_error(401, "AuthenticationError", "this is for who has the root key of the gateways")

    async def list_records(request: Request) -> Response:
        if (refused := refuse_caller(request)) is not None:
            return refused
        number = request.query_params.get("slowest", str(DEFAULT_LISTED))
        if not (number.isascii() and number.isdecimal() and len(number) < 4 and 0 < int(number) <= MOST_LISTED):
            message = f"slowest: is {number[:64]!r}: must be a whole number from 1 to {MOST_LISTED}"
            return _write_error(400, "BadRequestError", message)
        return JSONResponse({"requests": records.list_slowest(int(number), request.query_params.get("tenant"))})

    async def find_record(request: Request) -> Response:
        request_id = request.path_params["request_id"]
        if (refused := refuse_caller(request)) is not None:
            return refused
        if len(request_id) > LONGEST_ID:
            message = f"the id has {len(request_id)} characters: must have at most {LONGEST_ID}"
            return _write_error(400, "BadRequestError", message)
        if not (found := records.find(request_id)):
            message = "no such call has ended here, or others have taken its place; each gateway has its own calls"
            return _write_error(404, "NotFoundError", message)
        return JSONResponse({"requests": found})

    return [
        Route(paths.DEBUG_REQUESTS, list_records),
        Route(paths.DEBUG_REQUESTS + "/{request_id:path}", find_record),
    ]


def _write_error(status: int, kind: str, message: str) -> Response:
    return JSONResponse(GatewayError(status, kind, message).to_body(), status)
