"""Headers of an answer that are set while its prompt is made."""

from contextvars import ContextVar

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paternoster_contract.http.headers import CACHED_TOKENS, PROMPT_TOKENS

TOOL_TEMPLATE = "X-Paternoster-Tool-Template"
"""``built-in`` where :mod:`paternoster_engine.chat.tool_prompt` wrote the tools of the prompt."""

_headers: ContextVar[dict[str, str] | None] = ContextVar("_headers", default=None)
"""Headers of the call in progress; tasks that work on it share the dictionary."""


def set_answer_header(name: str, value: str) -> None:
    """Add a header to the answer of the call in progress; of no effect outside of a call."""
    headers = _headers.get()
    if headers is not None:
        headers[name] = value


def set_prompt_headers(prompt_tokens: int, cached_tokens: int) -> None:
    """Report how much of the prompts the prefix cache had, which is known with the first token."""
    set_answer_header(PROMPT_TOKENS, str(prompt_tokens))
    set_answer_header(CACHED_TOKENS, str(cached_tokens))


class AnswerHeaders:
    """Adds to each answer what :func:`set_answer_header` was called with."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Calls of one connection may share a context.
        headers: dict[str, str] = {}
        _headers.set(headers)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers)
            await send(message)

        await self._app(scope, receive, send_with_headers)
