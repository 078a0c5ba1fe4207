"""What comes of a call as the response to a client: it is discarded and its end recorded, however sending ends.

Load balancers end connections that are silent for a minute, and a stream may wait for longer than that: for a fleet
that starts, in an engine's queue, for a replica that continues it. After some seconds of silence its client gets
comments, which the format of event streams has for that, behind the status 200 where none was sent. What the stream
comes to after that stands in events: an error as well, whose status can no longer be sent.
https://html.spec.whatwg.org/multipage/server-sent-events.html#authoring-notes
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paternoster_contract.supervise import supervise_task
from paternoster_gateway.call.attempt import Headers
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.errors import CLIENT_GONE, GatewayError, client_gone, error_of_answer
from paternoster_gateway.process.access_log import forwarded
from paternoster_gateway.proxy.answer import Answer, AnswerBrokenOff
from paternoster_gateway.proxy.headers import EVENT_STREAM, NO_SNIFFING
from paternoster_http.errors.refusal import Refusal

COMMENT = b": keep-alive\n\n"
MAX_ERROR_BYTES = 64 * 2**10
"""Longest body of an engine's error that becomes an event, in bytes."""
NO_BUFFERING: Headers = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
"""Headers for proxies before the gateway, which would buffer a stream."""
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class ClientWatch:
    """Waits for the client of a request whose body is read to leave, until :meth:`close`.

    As a block, one after another: it cancels what the block waits for once the client has left, and raises
    :class:`ClientDisconnect` in place of that; or :meth:`interrupt_work` does, with another error. One task for a whole
    request, whatever it consists of.
    """

    def __init__(self, receive: Receive) -> None:
        self._left = asyncio.create_task(_wait_for_disconnect(receive))
        self._working: asyncio.Task[object] | None = None
        """The task that is in the block."""
        self._ending: Exception | None = None
        """Error to raise in place of the cancellation."""

    def __enter__(self) -> None:
        self._working = asyncio.current_task()
        self._left.add_done_callback(self._on_left)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        working, self._working = self._working, None
        ending, self._ending = self._ending, None
        self._left.remove_done_callback(self._on_left)
        # As asyncio.timeout has it: a second cancellation is somebody else's.
        if ending is None or working is None or working.uncancel() or kind is not asyncio.CancelledError:
            return
        try:
            raise ending from None
        finally:
            del ending  # its traceback has this frame: a cycle

    def close(self) -> None:
        """Watch no longer."""
        self._left.cancel()

    def interrupt_work(self, ending: Exception) -> None:
        """Have the block raise ``ending``."""
        if self._working is not None and self._ending is None:
            self._ending = ending
            self._working.cancel()

    def _on_left(self, _: asyncio.Task[None]) -> None:
        self.interrupt_work(ClientDisconnect())


class CommentedStream:
    """Sends one answer; once :meth:`begin_comments` was called, a comment wherever nothing is sent for some seconds.

    By a timer, and a task that sends: a piece of an answer costs the time of a clock.
    """

    __slots__ = (
        "_commenting", "_is_sending", "_loop", "_on_status", "_seconds", "_send", "_sent_at", "_tail", "_timer",
        "has_begun",
    )  # fmt: skip

    def __init__(self, send: Send, seconds: float, on_status: Callable[[], object]) -> None:
        """``seconds`` of silence; 0 for no comments. ``on_status``: called when the status is sent for a comment."""
        self.has_begun = False
        """Whether the status was sent, or is being sent."""
        self._send = send
        self._seconds = seconds
        self._on_status = on_status
        self._loop = asyncio.get_running_loop()
        self._sent_at = 0.0
        """Seconds of the loop's clock."""
        self._tail = _EVENT_ENDS[0]
        """The last bytes that were sent."""
        self._is_sending = False
        self._timer: asyncio.TimerHandle | None = None
        self._commenting: asyncio.Task[None] | None = None

    def begin_comments(self) -> None:
        """Begin the time of comments: all that could be refused at once is admitted."""
        if self._seconds > 0 and self._timer is None:
            self._sent_at = self._loop.time()
            self._set_timer()

    def end_comments(self) -> None:
        """Send no more of them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def send_status(self, status: int, headers: Headers) -> None:
        self.has_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send_piece(self, piece: bytes, *, more: bool = True) -> None:
        """A part of the body, behind a comment that is being sent; without ``more`` the last one."""
        if self._commenting is not None:
            await asyncio.wait([self._commenting])
        self._is_sending = True
        await self._send({"type": "http.response.body", "body": piece, "more_body": more})
        self._is_sending = False
        if self._timer is not None:
            self._sent_at = self._loop.time()
            self._tail = (piece if len(piece) >= len(_EVENT_ENDS[1]) else self._tail + piece)[-len(_EVENT_ENDS[1]) :]

    async def close(self) -> None:
        """Send nothing more."""
        self.end_comments()
        if (commenting := self._commenting) is not None:
            commenting.cancel()
            await asyncio.gather(commenting, return_exceptions=True)

    def _set_timer(self) -> None:
        self._timer = self._loop.call_at(self._sent_at + self._seconds, self._on_timer)

    def _on_timer(self) -> None:
        if (now := self._loop.time()) >= self._sent_at + self._seconds:
            self._sent_at = now
            # Not within an event, and not while the client does not read.
            if not self._is_sending and self._commenting is None and self._tail.endswith(_EVENT_ENDS):
                begins, self.has_begun = not self.has_begun, True
                if begins:
                    self._on_status()
                self._commenting = supervise_task(lambda: self._send_comment(begins), "stream-comment", again=False)
        self._set_timer()

    async def _send_comment(self, begins: bool) -> None:
        try:
            if begins:
                kind = (b"content-type", EVENT_STREAM.encode() + b"; charset=utf-8")
                await self.send_status(200, [kind, NO_SNIFFING, *NO_BUFFERING])
            await self._send({"type": "http.response.body", "body": COMMENT, "more_body": True})
        finally:
            self._commenting = None


class ForwardedAnswer(Response):
    """Awaits the answer to ``call`` and sends its status, headers and pieces; then calls ``on_end``, however it ended.

    In the task of the request, unlike Starlette's response to a stream: that one makes two more tasks, and leaves a
    cycle for the garbage collector where the client leaves early.
    """

    def __init__(
        self,
        call: Call,
        watch: ClientWatch,
        *,
        send_call: Callable[[Callable[[], object]], Awaitable[Answer]],
        comment_seconds: float,
        on_answer: Callable[[Answer], object],
        refuse: Callable[[GatewayError | Refusal], tuple[GatewayError, Response]],
        on_end: Callable[[], object],
    ) -> None:
        """``send_call`` returns the answer; it calls its argument once what can be refused at once is admitted.

        ``on_answer`` counts an engine's answer, ``refuse`` an error, of which it returns the response.
        """
        self.background = None
        self._call = call
        self._watch = watch
        self._send_call = send_call
        self._comment_seconds = comment_seconds
        self._on_answer = on_answer
        self._refuse = refuse
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = CommentedStream(send, self._comment_seconds, self._await_in_stream)
        answer: Answer | None = None
        try:
            answer = await self._await_answer(stream, scope, receive, send)
            if answer is not None:
                with self._watch:
                    await self._send_answer(answer, stream)
        except (ClientDisconnect, AnswerBrokenOff):
            pass  # without the last message of the answer the server breaks the connection off
        finally:
            self._call.open_request.end_in_event = None
            self._watch.close()
            self._on_end()
            await stream.close()
            if answer is not None:
                await answer.discard()

    def _await_in_stream(self) -> None:
        """The status was sent without an answer: where others need its place, the stream ends with an event."""
        self._call.open_request.end_in_event = self._watch.interrupt_work

    async def _await_answer(self, stream: CommentedStream, scope: Scope, receive: Receive, send: Send) -> Answer | None:
        """The answer; None where there is none, and the client has the error."""
        try:
            with self._watch:
                return await self._send_call(stream.begin_comments)
        except ClientDisconnect:
            fault: GatewayError | Refusal = client_gone()
        except (GatewayError, Refusal) as raised:
            fault = raised
        # Before the first await: the error's traceback has this frame, which has the error.
        error, response = self._refuse(fault)
        stream.end_comments()
        if not stream.has_begun:
            await response(scope, receive, send)
        elif error.status != CLIENT_GONE:
            with self._watch:
                await self._end_in_event(stream, error)
        return None

    async def _send_answer(self, answer: Answer, stream: CommentedStream) -> None:
        self._call.open_request.end_in_event = None
        fits = (
            answer.is_stream and answer.status == 200 and all(name != b"content-encoding" for name, _ in answer.headers)
        )
        if not fits:
            stream.end_comments()
        if not stream.has_begun:
            self._on_answer(answer)
            headers = answer.headers
            if answer.is_stream:
                replaced = {name for name, _ in NO_BUFFERING}
                headers = [*(each for each in headers if each[0] not in replaced), *NO_BUFFERING]
            await stream.send_status(answer.status, headers)
        elif fits:
            self._on_answer(answer)
        elif answer.status >= 400:
            self._on_answer(answer)
            await self._end_in_event(stream, error_of_answer(answer.status, await self._read_error(answer)))
            return
        else:
            message = f"A replica of `{self._call.model}` answered a request for an event stream with something else."
            error, _ = self._refuse(GatewayError(502, "BadGatewayError", message))
            await self._end_in_event(stream, error)
            return
        async for piece in answer.chunks:
            await stream.send_piece(piece)
        await stream.send_piece(b"", more=False)

    async def _read_error(self, answer: Answer) -> bytes:
        """The body of an engine's error; what is there of it where it is too long, or there is no room for it."""
        body = b""
        try:
            async for piece in answer.chunks:
                body += piece
                self._call.open_request.hold_answer("error", len(body))
                if len(body) > MAX_ERROR_BYTES:
                    break
        except (Refusal, AnswerBrokenOff) as fault:
            fault.with_traceback(None)
        self._call.open_request.hold_answer("error", 0)
        return body

    async def _end_in_event(self, stream: CommentedStream, error: GatewayError) -> None:
        if (details := forwarded.get()) is not None:
            details.error_event_code = error.status
        await stream.send_piece(error.encode_event(self._call.path))
        await stream.send_piece(b"", more=False)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
