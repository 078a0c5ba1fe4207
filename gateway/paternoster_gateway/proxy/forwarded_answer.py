"""An engine's answer as the response to a client: it is discarded and its end recorded, however sending ends."""

from collections.abc import Callable

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from paternoster_gateway.proxy.call import Answer


class ForwardedAnswer(StreamingResponse):
    """Sends the status, headers and pieces of ``answer``; then calls ``on_end``, also where sending failed."""

    def __init__(self, answer: Answer, on_end: Callable[[], object]) -> None:
        super().__init__(answer.chunks, answer.status)
        self.raw_headers = answer.headers
        self._answer = answer
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
            await self._answer.discard()
