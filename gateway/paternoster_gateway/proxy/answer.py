"""An engine's answer whose body is still on its way."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from paternoster_gateway.call.attempt import ReplicaAnswer


class AnswerBrokenOff(Exception):
    """The engine ended an answer before its end, and no other goes on with it: the client's connection ends there."""


@dataclass(slots=True, kw_only=True, eq=False)
class Answer(ReplicaAnswer):
    """An answer with its body; :meth:`discard` must be called in the end."""

    chunks: AsyncGenerator[bytes]
    """An empty one comes where the stream may be handed over and has no byte.

    As a client gets it, it raises :class:`AnswerBrokenOff`.
    """
    stack: AsyncExitStack = field(repr=False)
    """Resources that are closed behind the body."""

    async def discard(self) -> None:
        """End it, however much of it was read."""
        await self.chunks.aclose()
        await self.stack.aclose()
