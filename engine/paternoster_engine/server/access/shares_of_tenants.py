"""What the API's port shares out (places, bytes, turns) is counted by tenant where the gateway names it."""

from collections.abc import Mapping
from functools import lru_cache

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from paternoster_contract.access.identity import HEADER, LANE_HEADER, Identity
from paternoster_engine.server.access.identity import TenantRules
from paternoster_http.errors.openai_errors import error_body
from paternoster_http.errors.refusal import RETRY_AFTER_SECONDS, TYPES, Refusal
from paternoster_http.open_requests import charge_request, party_of
from paternoster_http.start_turns import StartTurns


class SharesOfTenants:
    """ASGI middleware, within the one that checks keys: counts a request before its body is read.

    Without an identity a request stays counted by its client's address.
    """

    def __init__(self, app: ASGIApp, rules: TenantRules) -> None:
        self._app = app
        self._rules = rules
        self._turns = StartTurns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        believes = scope["type"] == "http" and self._rules.believes_header
        headers: Mapping[str, str] = Headers(scope=scope) if believes else {}
        identity = headers.get(HEADER)
        tenant = None if identity is None else _tenant_of_identity(identity)
        try:
            if tenant is not None:
                charge_request(scope, (headers.get(LANE_HEADER, "tenants"), tenant))
        except Refusal as refusal:
            body = error_body(refusal.status, TYPES[refusal.status], str(refusal))
            response = JSONResponse(body, refusal.status, {"Retry-After": str(RETRY_AFTER_SECONDS)})
            await response(scope, receive, send)
            return
        if scope["type"] == "http":
            await self._turns.wait_turn(party_of(scope))
        await self._app(scope, receive, send)


@lru_cache(maxsize=1024)
def _tenant_of_identity(identity: str) -> str | None:
    """The name in the gateway's header; None where it is no identity, which the routes refuse."""
    try:
        return Identity.decode(identity).tenant
    except ValueError:
        return None
