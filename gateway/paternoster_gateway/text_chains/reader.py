"""Applies one replica's stream of text chains to the index of prefixes, and checks that nothing is missing. Pure."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice

from paternoster_contract.text_chains.stream import VERSION, Changes, Frame, Heartbeat, Hello, Snapshot
from paternoster_gateway.routing.prefix_routing import PrefixRouting

SLICE_PIECES = 256
"""Applied at once: a millisecond."""


Step = Callable[[], None]


class StreamFault(Exception):
    """The stream cannot be believed: what was read of it is forgotten."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """For a metric; one of few."""


class ChainReader:
    """What is known of one replica's cache; it outlives the connections by which it is read."""

    def __init__(self, url: str, model: str, prefixes: PrefixRouting) -> None:
        """``model``: the first of the names that the replica must serve."""
        self._url = url
        self._model = model
        self._prefixes = prefixes
        self._instance = ""
        self._sequence: int | None = None
        """Number of the last frame; None without a whole snapshot."""
        self._snapshot: int | None = None
        """Number of the snapshot that is being read."""
        self._has_hello = False
        self.bytes_read = 0
        """Bytes read over all connections."""
        self.has_read = False
        """Whether the last connection brought a whole index, or changes of it."""

    @property
    def is_whole(self) -> bool:
        """Whether the index has all that the replica reported."""
        return self._sequence is not None

    def start_connection(self) -> dict[str, str]:
        """Begin to read a new connection; returns the parameters to ask for it with."""
        self._has_hello = self.has_read = False
        if self._sequence is None:
            self.drop_replica()
            return {}
        return {"instance": self._instance, "after": str(self._sequence)}

    def drop_replica(self) -> None:
        """Forget all that was read."""
        self._prefixes.end_report(self._url)
        self._sequence = self._snapshot = None

    def apply(self, frame: Frame) -> Iterator[Step]:
        """Check ``frame``; yields the steps that apply it, in their order.

        Raises :class:`StreamFault`; then :meth:`drop_replica` must be called. A connection that ends between two steps
        begins with a snapshot the next time.
        """
        match frame:
            case Hello():
                self._read_hello(frame)
            case _ if not self._has_hello:
                raise StreamFault("garbage", "it begins with no hello")
            case Snapshot():
                yield from self._read_snapshot(frame)
            case Changes():
                yield from self._read_changes(frame)
            case Heartbeat():
                self._check_sequence(frame.sequence, 0)

    def _read_hello(self, hello: Hello) -> None:
        if self._has_hello:
            raise StreamFault("garbage", "a second hello came")
        if hello.version != VERSION:
            raise StreamFault("version", f"its version is {hello.version}: must be {VERSION}")
        if hello.model != self._model:
            raise StreamFault("model", f"its model is {hello.model[:64]!r}: must be {self._model!r}")
        if hello.resumes and (self._sequence is None or hello.instance != self._instance):
            raise StreamFault("garbage", "it resumes what was not asked for")
        self._has_hello, self._instance = True, hello.instance
        if not hello.resumes:
            self._sequence = self._snapshot = None
            self._prefixes.begin_report(self._url, isolates_tenants=hello.isolates_tenants)

    def _read_snapshot(self, snapshot: Snapshot) -> Iterator[Step]:
        if self._snapshot not in (None, snapshot.sequence) or self.is_whole:
            raise StreamFault("garbage", "a snapshot came where none was due")
        self._snapshot = snapshot.sequence
        yield from self._store_pieces(snapshot.stored)
        if snapshot.last:
            self._sequence, self._snapshot = snapshot.sequence, None
            self.has_read = True

    def _read_changes(self, changes: Changes) -> Iterator[Step]:
        self._check_sequence(changes.sequence, 1)
        # Until all is applied the index is of neither number.
        self._sequence = None
        index, url = self._prefixes.reported, self._url
        if changes.cleared:
            yield partial(index.remove_replica, url)
            yield partial(index.store, url, ())
        removed = iter(changes.removed)
        while digests := tuple(islice(removed, SLICE_PIECES)):
            yield partial(index.remove, url, digests)
        yield from self._store_pieces(changes.stored)
        self._sequence = changes.sequence

    def _check_sequence(self, sequence: int, step: int) -> None:
        if self._sequence is None:
            raise StreamFault("garbage", "changes came before a whole snapshot")
        if sequence != self._sequence + step:
            raise StreamFault("gap", f"number {sequence} came after {self._sequence}")
        self.has_read = True

    def _store_pieces(self, stored: Mapping[int, int]) -> Iterator[Step]:
        items = iter(stored.items())
        while pieces := tuple(islice(items, SLICE_PIECES)):
            yield partial(self._prefixes.reported.store, self._url, pieces)
