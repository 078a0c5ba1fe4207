"""The route class that bounds a body before it is parsed, and reads bodies in turns by tenant."""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from paternoster_engine.server.access.identity import tenant_of
from paternoster_engine.server.bodies.reading_shares import ReadingShares, charge_reading, charge_reading_to
from paternoster_engine.server.continuation.stream_call import current_call
from paternoster_engine.server.text_chains.prompt_text import CallText, begin_call_text
from paternoster_http.json_bounds import count_values

SMALL_BYTES = 256 * 2**10
SMALL_VALUES = 1024
"""Values and names; up to both, a body is read at once: reading it takes less than the rest of its call."""


class _BoundedRequest(Request):
    text: CallText

    async def json(self) -> Any:
        """Raises ``ValueError`` for what is no JSON, and ``JsonTooLarge``."""
        if not hasattr(self, "_json"):
            self._json = await self._read()
            self.text.body = self._json
        return self._json

    async def _read(self) -> Any:
        data = await self.body()
        if (call := current_call.get()) is not None:
            data = call.split_body(data)
        shares: ReadingShares = self.app.state.reading_shares
        if len(data) <= SMALL_BYTES and count_values(data) <= SMALL_VALUES:
            charge_reading_to(None)
            return json.loads(data.decode("utf-8-sig"))
        tenant = tenant_of(self)
        charge_reading_to(partial(shares.charge_tenant, tenant))
        end = await shares.wait_turn(tenant)
        try:
            await _run_piece(lambda: count_values(data))
            text = await _run_piece(lambda: data.decode("utf-8-sig"))
            return await _run_piece(lambda: json.loads(text))
        finally:
            # After the body has been validated, which the caller does before it waits for anything.
            asyncio.get_running_loop().call_soon(end)


async def _run_piece(step: Callable[[], Any]) -> Any:
    """Run ``step``, then sleep as long as it took, so that other calls get half of the loop."""
    started = time.monotonic()
    with charge_reading():
        result = step()
    await asyncio.sleep(time.monotonic() - started)
    return result


class BodyRoute(APIRoute):
    """Raises ``JsonTooLarge`` for a body with more than :mod:`paternoster_http.json_bounds` allows."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_bounded(request: Request) -> Response:
            bounded = _BoundedRequest(request.scope, request.receive)
            bounded.text = begin_call_text(request.scope["path"])
            return await handle(bounded)

        return handle_bounded


def new_router() -> APIRouter:
    """A router whose routes are :class:`BodyRoute`."""
    return APIRouter(route_class=BodyRoute)
