"""Replicas that compute streams and whole answers, and die, hang, drain and answer what no engine does."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from paternoster_contract.stream_journal import COMMENT, DRAINING, FAILED, HAND_OVER
from paternoster_gateway.routing.limits import ANSWERED_SECONDS
from streams.virtual.events import Clock

NUMERICS = "fp"
FRAME_SECONDS = 0.1
PROGRESS_TOKENS = 4
"""Tokens of a whole answer behind which its journal is sent."""
RESTART_SECONDS = (4.0, 12.0)
"""Bounds of the time from the end of an engine until its pod serves again."""


@dataclass(slots=True, eq=False)
class VirtualCall:
    """A client's request, and what an undisturbed replica answers."""

    number: int
    model: str
    is_stream: bool
    num_frames: int
    poison_at: int | None = None
    """The token of the answer that makes its engine die which computes it."""
    fails_at: int | None = None
    """The token at which the first step fails that computes it."""
    arrival: float = 0.0
    gateway: int = 0
    """Number of the gateway that has it: each judges by the stops that it sees."""
    kills: list["VirtualReplica"] = field(default_factory=list)
    """Engines that died of it in a row, without a frame and so early that it is a suspect."""
    at_foreign_stops: list["VirtualCall | None"] = field(default_factory=list)
    """Causes of the ends of engines that had it without a frame: a poison call, or None by chance."""

    def frame(self, number: int) -> bytes:
        return b"data: %d-%d\n\n" % (self.number, number)

    def expected(self) -> bytes:
        """The whole answer, as the client gets it."""
        return b"".join(self.frame(number) for number in range(self.num_frames))


class Receiver(Protocol):
    """The gateway's side of a connection."""

    def on_head(self, connection: "Connection", status: int) -> None: ...

    def on_piece(self, connection: "Connection", piece: bytes) -> None: ...

    def on_journal(self, connection: "Connection", tokens: int) -> None:
        """A whole answer has ``tokens`` now."""

    def on_handed_over(self, connection: "Connection", tokens: int, failed: bool) -> None:
        """The replica answers with the journal of a call that another one is to go on with."""

    def on_end(self, connection: "Connection", whole: bool) -> None:
        """The answer is whole, or the connection was closed."""


@dataclass(slots=True, eq=False)
class Connection:
    """One attempt at one replica. Bytes come in order, in pieces that begin and end anywhere."""

    call: VirtualCall
    replica: "VirtualReplica"
    receiver: Receiver
    first: int
    """Frames that are made again and not sent: the client has them."""
    tokens: int
    """Tokens that the journal has, which are not computed again, and those that were computed since."""
    clock: Clock
    sent_at: float
    is_open: bool = True
    """At the gateway."""
    runs: bool = True
    """At the replica."""
    made_frame: bool = False
    arrives: float = 0.0
    """Time at which the last action arrives: nothing overtakes it."""

    def deliver(self, action: Callable[..., object], *arguments: object) -> None:
        self.arrives = max(self.arrives, self.clock.now + self.clock.draw_delay())
        self.clock.at(self.arrives, self._arrive, action, arguments)

    def _arrive(self, action: Callable[..., object], arguments: tuple[object, ...]) -> None:
        if self.is_open and self.replica.state != "hung":
            self.replica.heard[id(self.receiver)] = self.clock.now
            action(self, *arguments)

    def cut(self) -> None:
        """Lose what is on its way; the gateway sees the end of the connection."""
        self.runs = False
        self.arrives = max(self.clock.now + 0.001, 0.0)
        self.clock.at(self.arrives, self._close)

    def _close(self) -> None:
        if self.is_open:
            self.receiver.on_end(self, False)


class VirtualReplica:
    """One pod. ``state``: ``up``, ``dead`` or ``hung``."""

    def __init__(self, url: str, model: str, clock: Clock, random: Random, on_change: Callable[[], object]) -> None:
        self.url = url
        self.model = model
        self.state = "up"
        self.drains = False
        self.rude = random.random() * 0.02
        """Share of calls that it answers with what no engine does, or refuses."""
        self.hung_since = 0.0
        self.heard: dict[int, float] = {}
        """Time of the last byte, by the identity of its receiver."""
        self.connections: list[Connection] = []
        self.stops: list[tuple[float, VirtualCall | None]] = []
        """Times at which calls lost it, or a step failed, each with the poison call that was why; None: chance."""
        self._clock = clock
        self._random = random
        self._on_change = on_change

    def receive(self, connection: Connection) -> None:
        """A call has come."""
        receiver, random = connection.receiver, self._random
        if self.state == "dead":
            self._clock.after(0.001, receiver.on_head, connection, 0)
            return
        self.connections.append(connection)
        if self.state == "hung":
            return
        if self.drains:
            connection.deliver(receiver.on_head, 503)
        elif random.random() < self.rude:
            connection.deliver(receiver.on_head, random.choice((302, 401, 502, 429, 400, 504)))
        else:
            if connection.first and connection.call.is_stream:
                connection.deliver(receiver.on_head, 200)
            self._clock.after(random.expovariate(2.0), self._begin_answer, connection)

    def _begin_answer(self, connection: Connection) -> None:
        """The prompt is computed: frames of tokens that the client lacks come at once."""
        tokens = connection.tokens
        if self.state == "up" and connection.runs and connection.is_open and connection.call.is_stream:
            for position in range(connection.first, tokens):
                self._send_token(connection, position)
        self._step(connection, tokens)

    def _step(self, connection: Connection, position: int) -> None:
        """Compute the token at ``position``, if the engine still has the call."""
        if not connection.runs or not connection.is_open or self.state == "dead":
            connection.runs = False
            return
        if self.state == "hung":
            self._clock.after(1.0, self._step, connection, position)
            return
        call, receiver = connection.call, connection.receiver
        if call.poison_at is not None and position >= call.poison_at:
            self.die(call)
            return
        if call.fails_at is not None and position >= call.fails_at:
            call.fails_at = None
            self.stops.append((self._clock.now, None))
            self._end_by_journal(connection, position, failed=True)
            return
        if position < call.num_frames:
            self._send_token(connection, position)
            self._clock.after(FRAME_SECONDS * self._random.uniform(0.3, 2), self._step, connection, position + 1)
            return
        connection.runs = False
        if not call.is_stream:
            connection.deliver(receiver.on_head, 200)
            text = call.expected()
            middle = self._random.randrange(len(text))
            for piece in (text[:middle], text[middle:]):
                if piece:
                    connection.deliver(receiver.on_piece, piece)
        connection.deliver(receiver.on_end, True)

    def _send_token(self, connection: Connection, position: int) -> None:
        call, receiver = connection.call, connection.receiver
        connection.tokens = position + 1
        if not call.is_stream:
            if position % PROGRESS_TOKENS == PROGRESS_TOKENS - 1:
                connection.deliver(receiver.on_journal, position + 1)
            return
        if position == 0 and not connection.first:
            connection.deliver(receiver.on_head, 200)
        piece = COMMENT + b"[%d]\n" % position + call.frame(position)
        if self.drains:
            piece += DRAINING + b"\n\n"
        connection.made_frame = True
        if self._random.random() < 0.2:
            at = self._random.randrange(1, len(piece))
            connection.deliver(receiver.on_piece, piece[:at])
            connection.deliver(receiver.on_piece, piece[at:])
        else:
            connection.deliver(receiver.on_piece, piece)

    def _end_by_journal(self, connection: Connection, tokens: int, *, failed: bool) -> None:
        connection.runs = False
        receiver = connection.receiver
        if connection.call.is_stream and (connection.made_frame or connection.first):
            ends = (FAILED + b"\n\n" if failed else b"") + HAND_OVER + b"\n\n"
            connection.deliver(receiver.on_piece, ends)
            connection.deliver(receiver.on_end, True)
        else:
            connection.deliver(receiver.on_handed_over, tokens, failed)

    def hand_over(self, connection: Connection) -> bool:
        """Whether the replica has the call without a byte, and ends it with its journal."""
        if self.state != "up" or not connection.runs or connection.made_frame or not connection.is_open:
            return False
        self._end_by_journal(connection, connection.tokens, failed=False)
        return True

    def die(self, cause: VirtualCall | None) -> None:
        """The engine ends, by ``cause`` or by chance, and its pod makes another one."""
        if self.state == "dead":
            return
        self.state, self.drains = "dead", False
        self.stops.append((self._clock.now, cause))
        connections, self.connections = self.connections, []
        if cause is not None:
            own = next((each for each in connections if each.call is cause and each.runs), None)
            if own is not None and not own.made_frame and self._clock.now - own.sent_at < ANSWERED_SECONDS:
                cause.kills.append(self)
        for connection in connections:
            if connection.is_open:
                if connection.runs and connection.call is not cause and not connection.made_frame:
                    connection.call.at_foreign_stops.append(cause)
                connection.cut()
        self._clock.after(self._random.uniform(*RESTART_SECONDS), self.restart)
        self._on_change()

    def restart(self) -> None:
        self.state, self.drains = "up", False
        self.rude = self._random.random() * 0.02
        self._on_change()

    def hang(self) -> None:
        """Send nothing more, and answer no probe, for some seconds."""
        if self.state == "up":
            self.state, self.hung_since = "hung", self._clock.now
            self.stops.append((self._clock.now, None))
            self._clock.after(self._random.uniform(1.0, 20.0), self._wake_up)

    def _wake_up(self) -> None:
        if self.state == "hung":
            self.die(None)

    def cut_connections(self) -> None:
        """About half of them end, and the engine goes on."""
        self.stops.append((self._clock.now, None))
        for connection in self.connections:
            if connection.is_open and self._random.random() < 0.5:
                connection.cut()

    def drain(self) -> None:
        """Admit nothing more; its pod ends soon."""
        if self.state == "up" and not self.drains:
            self.drains = True
            self._clock.after(self._random.uniform(3.0, 20.0), self._end_drain)
            self._on_change()

    def _end_drain(self) -> None:
        if self.state == "up" and self.drains:
            for connection in self.connections:
                if connection.runs and connection.is_open and self._random.random() < 0.8:
                    self._end_by_journal(connection, connection.tokens, failed=False)
            self._clock.after(0.5, self.die, None)
