"""One LLMDeployment in one moment, as a view shows it and a record keeps it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from paternoster_contract.stats import Unreported
from paternoster_operator.autoscaling.decision import LIVE_CAP, REPLICAS, LoopDecision
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
    running: int | None
    """Sequences; each number of engines is None where they do not report it."""
    waiting: int | None
    held: int
    preempted: int | None
    finished: int | None
    preemption_rate: float | None
    """Share of requests."""
    kv_usage: float | None
    tokens_per_second: float | None
    fresh: bool

    @classmethod
    def from_fleet(cls, key: Key, fleet: Fleet) -> "Snapshot":
        signals, targets = fleet.observed.signals, fleet.memory.states.targets
        reported = signals.reported_number
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
            running=reported(signals.running),
            waiting=reported(signals.waiting),
            held=signals.held,
            preempted=reported(signals.preempted, Unreported.PREEMPTIONS),
            finished=reported(signals.finished, Unreported.REQUESTS),
            preemption_rate=reported(round(signals.preemption_rate, 4), Unreported.PREEMPTIONS),
            kv_usage=reported(round(signals.kv_usage, 4), Unreported.KV_BLOCKS),
            tokens_per_second=reported(round(signals.generation_tokens_per_second, 1)),
            fresh=signals.fresh,
        )

    def to_document(self, decisions: Iterable[LoopDecision]) -> dict[str, Any]:
        """Write JSON, with the decisions made since the last one."""
        return {**asdict(self), "decisions": [decision.to_document() for decision in decisions]}
