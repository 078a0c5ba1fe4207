"""What a peer is to the comparison."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from paternoster_load.results import BenchRequest, RequestResult

OnResult = Callable[[RequestResult], None]


class PeerError(RuntimeError):
    """A peer that did not start or did not answer; the text says where its log is."""


class Running(Protocol):
    """A peer that is ready."""

    session: int
    """Session id of its processes."""

    def serve(self, requests: Sequence[BenchRequest], concurrency: int, on_result: OnResult) -> list[RequestResult]:
        """Answer all requests, at most ``concurrency`` at a time; results in the order of requests."""
        ...


class Peer(Protocol):
    """How one peer is set up and run."""

    name: str
    precision: str
    starts_anew: bool
    """Whether each concurrency has a start of its own; else one start does for all."""

    def describe(self) -> str:
        """Version and the settings that matter, in a line."""
        ...

    def set_up(self) -> None:
        """Everything that takes a network or minutes; raises :class:`peers.systems.environment.SetUpError`."""
        ...

    def start(self, checkpoint: Path, threads: int, most: int, log: Path) -> AbstractContextManager[Running]:
        """Ready inside for up to ``most`` requests at once, gone after; raises :class:`PeerError`."""
        ...
