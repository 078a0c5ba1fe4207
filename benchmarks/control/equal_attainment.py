"""GPU-hours beside those of the cheapest peer that attains as much: the measure of the project's bar."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import geometric_mean

from control.contenders import OURS
from control.search import DEFAULT, TARGETS, Row

NO_PEERS = (OURS, "without-cap-loop")
HEALTHY = 0.02
"""Requests preempted, as a share, up to which a peer is one that an operator would let run."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The law at one operating point of one scenario, and the peers to beat there."""

    ours: Row
    peer: Row | None
    """Cheapest of those that attain as much; None where nobody does."""
    healthy: Row | None
    """Cheapest of those that attain as much and preempt no more than :data:`HEALTHY`."""

    @property
    def ratio(self) -> float | None:
        """The law's GPU-hours over the peer's; None without a peer."""
        return self._over(self.peer)

    @property
    def healthy_ratio(self) -> float | None:
        """The law's GPU-hours over those of the healthy peer; None without one."""
        return self._over(self.healthy)

    def _over(self, peer: Row | None) -> float | None:
        return None if peer is None else self.ours.test.gpu_hours / peer.test.gpu_hours


def compared(rows: Sequence[Row]) -> Iterator[Comparison]:
    """For each scenario: as installed among the installed, then tuned for each target among all rows of all peers.

    The law has the setting that a search picked on other traffic; of a peer's rows the best on the judged traffic
    counts, so that what chance there is in a search is not ours to gain by. Without peers nothing is compared.
    """
    for _, group in groupby(rows, key=lambda row: row.scenario):
        members = list(group)
        peers = [row for row in members if row.contender not in NO_PEERS and not row.in_hindsight]
        if not peers:
            continue
        for ours in (row for row in members if row.contender == OURS):
            enough, allowed = ours.test.slo_attainment, peers
            if ours.point == DEFAULT:
                allowed = [row for row in peers if row.point == DEFAULT]
            else:
                # A target that both reach is reached; above it nobody is better.
                enough = min(_TARGET[ours.point], enough)
            equal = [row for row in allowed if row.test.slo_attainment >= enough]
            healthy = [row for row in equal if row.test.preemption_rate <= HEALTHY]
            yield Comparison(ours, _cheapest(equal), _cheapest(healthy))


def mean_ratio(ratios: Iterable[float | None]) -> float | None:
    """Geometric mean of the ratios there are, as is due to ratios; None where there are none.

    Source: Fleming and Wallace, "How not to lie with statistics: the correct way to summarize benchmark results",
    CACM 29(3), 1986.
    """
    known = [ratio for ratio in ratios if ratio is not None]
    return geometric_mean(known) if known else None


def _cheapest(rows: Iterable[Row]) -> Row | None:
    return min(rows, key=lambda row: row.test.gpu_hours, default=None)


_TARGET = {f"{target:.0%}": target for target in TARGETS}
