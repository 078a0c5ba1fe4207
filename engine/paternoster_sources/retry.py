"""Another attempt after a failure that may pass: later each time, and not for ever."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from paternoster_sources.errors import Interrupted, Unreachable

T = TypeVar("T")

LONGEST_AFTER = 120.0
"""Seconds that a server may ask us to wait."""


class DownloadStopped(Exception):
    """Another file's download failed: this one need not go on."""


@dataclass(frozen=True, slots=True)
class RetryPauses:
    """``attempts`` without progress in between; pauses double from ``first`` to ``longest`` seconds, with jitter."""

    attempts: int = 6
    first: float = 0.5
    longest: float = 30.0

    def pause(self, failed: int, after: float = 0.0) -> float:
        """Seconds to wait after the ``failed``-th failure in a row, at least what the server asked for."""
        backoff: float = min(self.longest, self.first * 2.0 ** (failed - 1)) * random.uniform(0.5, 1.0)
        return max(backoff, min(after, LONGEST_AFTER))

    def wait(self, failed: int, error: Interrupted, what: str, stopping: threading.Event) -> None:
        """Wait before the next attempt; raises :class:`Unreachable` when there is none left."""
        if failed >= self.attempts:
            raise Unreachable(f"{what}: {error}; tried {failed} times") from error
        if stopping.wait(self.pause(failed, error.after)):
            raise DownloadStopped

    def call_again(self, function: Callable[[], T], what: str) -> T:
        """What ``function`` gives, tried again after :class:`Interrupted`."""
        failed = 0
        while True:
            try:
                return function()
            except Interrupted as error:
                failed += 1
                self.wait(failed, error, what, threading.Event())
