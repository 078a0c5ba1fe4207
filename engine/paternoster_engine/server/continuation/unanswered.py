"""Calls of which no byte was answered yet: another engine may go on with each of them, too."""

from collections.abc import Sequence
from typing import Protocol
from weakref import WeakValueDictionary

from paternoster_contract.stream_journal import StreamId
from paternoster_engine.server.continuation.stream_call import current_call


class Unanswered(Protocol):
    """The work on one call."""

    def hand_over(self) -> None: ...

    def encode_progress(self) -> Sequence[bytes]: ...


class UnansweredCalls:
    """Calls with an id of the gateway, as long as something works on them."""

    def __init__(self) -> None:
        self._calls: WeakValueDictionary[str, Unanswered] = WeakValueDictionary()

    def add(self, work: Unanswered) -> None:
        """The work on the current call, which has an id."""
        call = current_call.get()
        if call is not None:
            self._calls[call.stream_id.hex] = work

    def hand_over(self, stream_id: StreamId) -> bool:
        """Answer the call with what another engine needs to go on with it; False where there is no such call."""
        work = self._calls.get(stream_id.hex)
        if work is None:
            return False
        work.hand_over()
        return True

    def encode_progress(self, stream_id: StreamId) -> Sequence[bytes]:
        """Lines of the call's journal since the last time; empty where there is no such call."""
        work = self._calls.get(stream_id.hex)
        return () if work is None else work.encode_progress()
