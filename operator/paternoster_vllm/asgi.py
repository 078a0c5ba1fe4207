"""What the plugin's layers need of ASGI: types, bodies and answers."""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def read_body(receive: Receive, longest: int) -> tuple[bytes | None, Receive]:
    """The body of a request, and what gives an application the same messages again.

    None for one that has more than ``longest`` bytes, or whose client left before its end.
    """
    messages: list[MutableMapping[str, Any]] = []
    size, is_whole = 0, False
    while size <= longest and not is_whole:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request":
            break
        size += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)

    async def receive_again() -> MutableMapping[str, Any]:
        return messages.pop(0) if messages else await receive()

    body = b"".join(message.get("body", b"") for message in messages) if is_whole and size <= longest else None
    return body, receive_again


def error_body(text: str, field: str = "") -> dict[str, Any]:
    return {"error": {"message": text, "param": field or None}}


async def send_json(send: Send, status: int, document: Mapping[str, Any], *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps(document).encode()
    basic = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*basic, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, status: int, text: str, field: str = "") -> None:
    await send_json(send, status, error_body(text, field))


NOT_SERVING, STOPPED, DIED = b"x-paternoster-not-serving", b"stopped", b"died"
"""Header of a 503 that gateways send to another replica, and its values: for a request that came to a dead engine, and
for one that the engine had when it died, which may be why."""


RETRY_AFTER = b"retry-after"


def adapt_status(scope: Scope, send: Send) -> Send:
    """``send``, with a 503 in place of the 500 that vLLM answers when its engine core is dead.

    A 503 of vLLM's own, which has no place for the request, says when to try again: in a second, as our engine's does.
    """
    client = getattr(getattr(scope.get("app"), "state", None), "engine_client", None)
    reason = STOPPED if getattr(client, "errored", False) else DIED

    async def send_status(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ())]
            if message["status"] == 500 and getattr(client, "errored", False):
                message = {**message, "status": 503, "headers": [*headers, (NOT_SERVING, reason)]}
            elif message["status"] == 503 and all(name.lower() != RETRY_AFTER for name, _ in headers):
                message = {**message, "headers": [*headers, (RETRY_AFTER, b"1")]}
        await send(message)

    return send_status
