"""Which watches of the API server work, and why others do not.

A watch is of one kind of objects, in one namespace or in all. Each is a failure domain of its own: what the operator
has of a namespace is out of date while a watch of it fails, and nothing else is.
"""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from paternoster_operator.cluster.port import WatchFault

log = logging.getLogger(__name__)

EVERY_NAMESPACE = "*"
GRACE_SECONDS = 10.0
"""A watch that was whole may fail for so long before its namespace counts as out of date."""
MOST_REFUSALS = 3
"""Refusals of a namespace's list, while another namespace can be read, after which the operator begins without it."""
LOG_SECONDS = 60.0
"""Time between two log lines about a watch that goes on failing."""


class Watch(NamedTuple):
    kind: str
    namespace: str
    """:data:`EVERY_NAMESPACE` for all of them."""

    def __str__(self) -> str:
        return f"{self.kind} in {'every namespace' if self.namespace == EVERY_NAMESPACE else self.namespace}"


@dataclass(slots=True)
class _State:
    fault: str = ""
    """Fault of the last attempt; empty while the watch works."""
    failed_since: float | None = None
    logged_at: float = float("-inf")
    num_objects: int | None = None
    """In the last whole list; None before the first."""
    works: bool = False
    refusals: int = 0
    """Refused lists in a row, while another namespace could be read."""

    @property
    def skipped(self) -> bool:
        return self.refusals >= MOST_REFUSALS

    @property
    def listed(self) -> bool:
        return self.num_objects is not None and not self.skipped


def _ignore_change(_watch: Watch, _works: bool) -> None:
    pass


class WatchStates:
    """What came of each watch of one operator."""

    def __init__(
        self,
        observe: Callable[[Watch, bool], None] = _ignore_change,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``observe`` is called for each failure (False), and when a watch begins to work (True)."""
        self._observe = observe
        self._clock = clock
        self._by_namespace: dict[str, dict[str, _State]] = {}

    def add(self, watch: Watch) -> None:
        """A watch that has nothing yet."""
        self._by_namespace.setdefault(watch.namespace, {})[watch.kind] = _State()

    def record_list(self, watch: Watch, num_objects: int) -> None:
        """Its objects were listed, all of them."""
        self._get(watch).num_objects = num_objects

    def record_answer(self, watch: Watch) -> None:
        """The API server has begun to answer the watch."""
        state = self._get(watch)
        if state.failed_since is not None:
            log.warning("%s: watched again after %.0f s", watch, self._clock() - state.failed_since)
        was_working, state.works, state.fault, state.failed_since, state.refusals = state.works, True, "", None, 0
        if not was_working:
            self._observe(watch, True)

    def record_failure(self, watch: Watch, fault: str, *, refused: bool) -> bool:
        """An attempt failed; ``refused``: the API server does not let the operator read these objects, or has none.

        Returns whether the operator begins without them: other namespaces do not wait for one that is refused.
        """
        state, now = self._get(watch), self._clock()
        state.works, state.fault = False, fault
        state.failed_since = now if state.failed_since is None else state.failed_since
        if now - state.logged_at >= LOG_SECONDS:
            state.logged_at = now
            log.warning("%s: cannot be watched, tried again without end: %s", watch, fault)
        self._observe(watch, False)
        if state.num_objects is None:
            state.refusals = state.refusals + 1 if refused and self._can_read_another(watch.namespace) else 0
        return state.skipped

    def find_fault(self, namespace: str) -> WatchFault | None:
        """Why the cache of ``namespace`` may be out of date; None where it is not."""
        now = self._clock()
        for name in (EVERY_NAMESPACE, namespace):
            states = self._by_namespace.get(name, {})
            for listed in (False, True):
                for kind, state in states.items():
                    if state.listed is listed and _is_out_of_date(state, now):
                        why = state.fault or "not answered yet"
                        return WatchFault(f"the operator cannot watch {Watch(kind, name)}: {why}", listed)
        return None

    def is_complete(self, kinds: Collection[str], namespaces: int) -> bool:
        """Whether ``kinds`` were listed in that number of namespaces, those left aside that are refused."""
        every = list(self._by_namespace.values())
        return len(every) == namespaces and all(
            set(kinds) <= states.keys() and all(s.num_objects is not None or s.skipped for s in states.values())
            for states in every
        )

    def count_objects(self, kind: str) -> int:
        """Objects of ``kind`` in the last whole lists of every namespace."""
        found = [states[kind].num_objects for states in self._by_namespace.values() if kind in states]
        return sum(each or 0 for each in found)

    def _get(self, watch: Watch) -> _State:
        return self._by_namespace[watch.namespace][watch.kind]

    def _can_read_another(self, namespace: str) -> bool:
        return any(
            other != namespace and all(state.works for state in states.values())
            for other, states in self._by_namespace.items()
        )


def _is_out_of_date(state: _State, now: float) -> bool:
    if not state.listed:
        return True
    return state.failed_since is not None and now - state.failed_since >= GRACE_SECONDS
