"""What two engines must do alike for the same call: draw its ids, times and seeds.

The gateway gives a call an id (:mod:`paternoster_contract.stream_journal`). What the answer to such a call draws at
random is a function of that id and of how often was drawn before; other calls draw from the system.
"""

import secrets
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import blake2b

from paternoster_contract.stream_journal import RESUME, JournalEntry, Resume, StreamId, decode_journal
from paternoster_engine.server.errors import InvalidValue

SEED_BITS = 63


@dataclass(slots=True)
class StreamCall:
    """A call that has an id from the gateway."""

    stream_id: StreamId
    resume: Resume | None = None
    """Which part of the stream the client has; None for a stream that begins."""
    journal: bytes = field(default=b"", repr=False)
    """Journal of that part, once the body was read."""
    num_drawn: int = 0

    def draw_bytes(self, num_bytes: int) -> bytes:
        self.num_drawn += 1
        return blake2b(f"{self.stream_id.hex}:{self.num_drawn}".encode(), digest_size=num_bytes).digest()

    def draw_seed(self) -> int:
        return int.from_bytes(self.draw_bytes(8), "big") >> (64 - SEED_BITS)

    def split_body(self, data: bytes) -> bytes:
        """The client's body, which the journal stands behind."""
        if self.resume is None:
            return data
        end = max(0, len(data) - self.resume.num_bytes)
        self.journal = data[end:]
        return data[:end]

    def decode_journal(self) -> list[JournalEntry]:
        """Raises :class:`InvalidValue` for what no engine writes."""
        try:
            return decode_journal(self.journal)
        except ValueError as error:
            raise InvalidValue(RESUME, f"{RESUME}: {error}") from error


current_call: ContextVar[StreamCall | None] = ContextVar("current_call", default=None)


def new_hex() -> str:
    """32 hexadecimal digits for an id of the answer to the current call."""
    call = current_call.get()
    return secrets.token_hex(16) if call is None else call.draw_bytes(16).hex()


def created_time() -> int:
    """Unix seconds at which the current call came to the gateway, or now."""
    call = current_call.get()
    return int(time.time()) if call is None else call.stream_id.created
