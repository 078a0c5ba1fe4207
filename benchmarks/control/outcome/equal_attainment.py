"""GPU-hours beside those of the cheapest peer that attains as much: the measure of the project's bar."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import geometric_mean

from control.search import DEFAULT, TARGETS, Row
from paternoster_simulator.policies.registry import OURS

NO_PEERS = (OURS, "without-cap-loop")
UNTUNED = "default, peers tuned"
"""The law as installed beside peers that were tuned."""
HEALTHY = 0.02
"""Requests preempted, as a share, up to which a peer is one that an operator would let run."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The law at one operating point of one scenario, and the peers to beat there."""

    ours: Row
    point: str
    """:data:`UNTUNED`, or the law's own operating point."""
    equal: tuple[Row, ...]
    """Rows of the peers that attain as much."""

    @property
    def peer(self) -> Row | None:
        """Cheapest of those that attain as much; None where none does."""
        return _cheapest(self.equal)

    @property
    def healthy(self) -> Row | None:
        """Cheapest of those that attain as much and preempt no more than :data:`HEALTHY`."""
        return _cheapest(row for row in self.equal if row.test.preemption_rate <= HEALTHY)

    @property
    def ratio(self) -> float | None:
        """The law's GPU-hours over the peer's; None without a peer."""
        return self._over(self.peer)

    @property
    def healthy_ratio(self) -> float | None:
        """The law's GPU-hours over those of the healthy peer; None without one."""
        return self._over(self.healthy)

    def ratio_to(self, contender: str) -> float | None:
        """The law's GPU-hours over those of one peer; None where it never attains as much."""
        return self._over(_cheapest(row for row in self.equal if row.contender == contender))

    def _over(self, peer: Row | None) -> float | None:
        return None if peer is None else self.ours.test.gpu_hours / peer.test.gpu_hours


def compared(rows: Sequence[Row]) -> Iterator[Comparison]:
    """For each scenario: as installed among the installed, then as installed and tuned for each target among all rows.

    The law has the setting that a search picked on other traffic; of a peer's rows the best on the judged traffic
    counts, so that what chance there is in a search is not ours to gain by. Without peers nothing is compared.
    """
    for _, group in groupby(rows, key=lambda row: row.scenario):
        members = list(group)
        peers = peers_among(members)
        installed = [row for row in peers if row.point == DEFAULT]
        for ours in (row for row in members if row.contender == OURS and peers):
            attained = ours.test.slo_attainment
            if ours.point == DEFAULT:
                yield _comparison(ours, DEFAULT, installed, attained)
                if len(installed) < len(peers):
                    yield _comparison(ours, UNTUNED, peers, attained)
            else:
                # A target that both reach is reached; above it no contender is better.
                yield _comparison(ours, ours.point, peers, min(_TARGET[ours.point], attained))


def peers_among(rows: Iterable[Row]) -> list[Row]:
    """The rows of policies that could be run instead of the law."""
    return [row for row in rows if row.contender not in NO_PEERS and not row.in_hindsight]


def _comparison(ours: Row, point: str, allowed: Sequence[Row], enough: float) -> Comparison:
    return Comparison(ours, point, tuple(row for row in allowed if row.test.slo_attainment >= enough))


def mean_ratio(ratios: Iterable[float | None]) -> float | None:
    """Geometric mean of the ratios there are, as is due to ratios; None where there are none.

    Source: Fleming and Wallace, "How not to lie with statistics: the correct way to summarize benchmark results",
    CACM 29(3), 1986.
    """
    present_ratios = [ratio for ratio in ratios if ratio is not None]
    return geometric_mean(present_ratios) if present_ratios else None


def _cheapest(rows: Iterable[Row]) -> Row | None:
    return min(rows, key=lambda row: row.test.gpu_hours, default=None)


_TARGET = {f"{target:.0%}": target for target in TARGETS}
