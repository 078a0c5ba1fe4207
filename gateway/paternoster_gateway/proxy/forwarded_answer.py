"""An engine's answer as the response to a client: it is discarded and its end recorded, however sending ends."""

import asyncio
from collections.abc import Callable
from types import TracebackType

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paternoster_gateway.proxy.call import Answer


class ClientWatch:
    """Waits for the client of a request whose body is read to leave, until :meth:`close`.

    As a block, one after another: it cancels what the block waits for once the client has left, and raises
    :class:`ClientDisconnect` in place of that. One task for a whole request, whatever it consists of.
    """

    def __init__(self, receive: Receive) -> None:
        self._left = asyncio.create_task(_wait_for_disconnect(receive))
        self._working: asyncio.Task[object] | None = None
        """The task that is in the block."""
        self._cancelled = False

    def __enter__(self) -> None:
        self._working = asyncio.current_task()
        self._left.add_done_callback(self._cancel_work)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        working, self._working = self._working, None
        self._left.remove_done_callback(self._cancel_work)
        # As asyncio.timeout has it: a second cancellation is somebody else's.
        if self._cancelled and working is not None and not working.uncancel() and kind is asyncio.CancelledError:
            raise ClientDisconnect from None

    def close(self) -> None:
        """Watch no longer."""
        self._left.cancel()

    def _cancel_work(self, _: asyncio.Task[None]) -> None:
        if self._working is not None:
            self._cancelled = True
            self._working.cancel()


class ForwardedAnswer(Response):
    """Sends the status, headers and pieces of ``answer``; then calls ``on_end``, also where sending failed.

    In the task of the request, unlike Starlette's response to a stream: that one makes two more tasks, and leaves a
    cycle for the garbage collector where the client leaves early.
    """

    def __init__(self, answer: Answer, watch: ClientWatch, on_end: Callable[[], object]) -> None:
        self.status_code = answer.status
        self.raw_headers = answer.headers
        self.background = None
        self._answer = answer
        self._watch = watch
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._watch:
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                async for piece in self._answer.chunks:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except ClientDisconnect:
            pass
        finally:
            self._watch.close()
            self._on_end()
            await self._answer.discard()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
