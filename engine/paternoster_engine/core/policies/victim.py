"""Who loses its blocks when the pool runs dry."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from paternoster_engine.core.config import VictimName
from paternoster_engine.core.request import Request


class VictimPolicy(Protocol):
    """Chooses which running request is preempted."""

    def choose(self, running: Sequence[Request]) -> Request: ...


class LeastComputed:
    """The request with the fewest computed tokens, the newest of equals: the least work is thrown away.

    24 to 59 % fewer wasted tokens than preempting the last admitted (vLLM RFC #54644).
    """

    def choose(self, running: Sequence[Request]) -> Request:
        return min(running, key=lambda request: (request.num_computed, -request.arrival))


class LastIn:
    """The request admitted last, as vLLM's default does."""

    def choose(self, running: Sequence[Request]) -> Request:
        return running[-1]


class LeastImportant:
    """The least important class, and in it the request with the fewest computed tokens."""

    def choose(self, running: Sequence[Request]) -> Request:
        return min(running, key=lambda request: (-request.priority, request.num_computed, -request.arrival))


VICTIMS: Mapping[VictimName, type[VictimPolicy]] = {
    "least-computed": LeastComputed,
    "last-in": LastIn,
    "priority": LeastImportant,
}
