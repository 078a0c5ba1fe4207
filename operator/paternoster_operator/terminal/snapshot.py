"""One LLMDeployment in one moment, as a view shows it and a record keeps it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from paternoster_contract.stats import Unreported
from paternoster_operator.autoscaling.decision import LIVE_CAP, REPLICAS, LoopDecision
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.cluster.port import Key
from paternoster_operator.fleet import Fleet
from paternoster_operator.report.engine_facts import EngineFacts


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Numbers as in the operator's last look."""

    namespace: str
    name: str
    model: str
    desired: int
    ready: int
    pending: int
    draining: int
    cap: int
    capacity: int
    running: int
    waiting: int
    held: int
    preempted: int
    finished: int
    preemption_rate: float | None
    """Share of requests; None where engines do not report it."""
    kv_usage: float | None
    tokens_per_second: float
    fresh: bool

    @classmethod
    def from_fleet(cls, key: Key, fleet: Fleet) -> "Snapshot":
        signals, targets = fleet.observed.signals, fleet.memory.states.targets
        return cls(
            namespace=key.namespace,
            name=key.name,
            model=fleet.resource.served_name,
            desired=targets.get(REPLICAS, 0),
            ready=len(fleet.observed.serving),
            pending=len(fleet.observed.pending),
            draining=len(fleet.observed.draining),
            cap=targets.get(LIVE_CAP, 0),
            capacity=EngineFacts.from_reports(signals.reports).capacity,
            running=signals.running,
            waiting=signals.waiting,
            held=signals.held,
            preempted=signals.preempted,
            finished=signals.finished,
            preemption_rate=_round_known(signals, Unreported.PREEMPTIONS, signals.preemption_rate),
            kv_usage=_round_known(signals, Unreported.KV_BLOCKS, signals.kv_usage),
            tokens_per_second=round(signals.generation_tokens_per_second, 1),
            fresh=signals.fresh,
        )

    def to_document(self, decisions: Iterable[LoopDecision]) -> dict[str, Any]:
        """Write JSON, with the decisions made since the last one."""
        return {**asdict(self), "decisions": [decision.to_document() for decision in decisions]}


def _round_known(signals: Signals, name: Unreported, share: float) -> float | None:
    return round(share, 4) if signals.has_numbers(name) else None
