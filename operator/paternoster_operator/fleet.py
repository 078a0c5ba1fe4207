"""What the operator remembers of one LLMDeployment between two reconciles; all of it can be learnt again."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from paternoster_contract.stats import EngineStats, GatewayStats
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.apply import AppliedChildren
from paternoster_operator.autoscaling.autoscaler import Autoscaler
from paternoster_operator.autoscaling.decision import REPLICAS, Decision, LoopDecision
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.cluster.pod_events import EventReader
from paternoster_operator.engine_checks.checks import EngineChecks
from paternoster_operator.engines.adapter import EngineAdapter
from paternoster_operator.engines.catalogue import ADAPTERS, TARGET_ADAPTERS
from paternoster_operator.observe import Observed
from paternoster_operator.report.cap_faults import CapFaults
from paternoster_operator.report.history import History
from paternoster_operator.report.startup import StartupTimes

KEPT_CHANGES = 100


STEADY_SECONDS = 300.0
"""Length of a run after which the ends before it no longer count."""
LOOP_ENDS = 3
"""Ends within such runs from which an engine that has served is taken to end again and again."""


@dataclass(slots=True)
class ServedPods:
    """Which pods of a fleet have served, and how often each had ended when it last ran for long."""

    _steady_ends: dict[str, int] = field(default_factory=dict)
    """Its ends as of its last run of :data:`STEADY_SECONDS`, or else as of when it served first, by the pod's name."""
    _served_ends: dict[str, int] = field(default_factory=dict)
    """The same as of the last run in which it served."""

    def mark_pods(self, observed: Observed, now: str) -> Observed:
        """``observed`` with what is remembered of its pods, as of the RFC 3339 time ``now``."""
        names = {pod.name for pod in observed.pods}
        self._steady_ends, self._served_ends = (
            {name: ends for name, ends in before.items() if name in names}
            for before in (self._steady_ends, self._served_ends)
        )
        for pod in observed.pods:
            lasted = 0.0 if pod.ended is None else pod.ended.lasted_seconds or 0.0
            if pod.ready:
                self._served_ends[pod.name] = pod.ends
                if pod.name not in self._steady_ends or pod.has_run_since(STEADY_SECONDS, now):
                    self._steady_ends[pod.name] = pod.ends
            elif pod.name not in self._served_ends and lasted >= STEADY_SECONDS:  # another operator saw it serve
                self._steady_ends[pod.name] = self._served_ends[pod.name] = pod.ends - 1
        ended = [pod for pod in observed.pods if not pod.ready and pod.ends > self._served_ends.get(pod.name, pod.ends)]
        return observed.with_served(
            served=self._served_ends.keys(),
            in_this_run={pod.name for pod in observed.pods if self._served_ends.get(pod.name) == pod.ends},
            recover={pod.name for pod in ended if pod.ends - self._steady_ends[pod.name] < LOOP_ENDS},
        )


@dataclass(slots=True)
class Fleet:
    """One LLMDeployment with what was observed, decided and applied."""

    autoscaler: Autoscaler
    last_decision: Decision | None = None
    """The last decision of each loop."""
    resource: LLMDeployment | None = None
    observed: Observed = field(default_factory=lambda: Observed(None, ()))
    applied: AppliedChildren = field(default_factory=AppliedChildren)
    events: EventReader = field(default_factory=EventReader)
    served_pods: ServedPods = field(default_factory=ServedPods)
    checks: EngineChecks = field(default_factory=EngineChecks)
    disrupted: Collection[str] | None = None
    """Pods that were ended by something else than their Deployment and are reported; None before the first look."""
    engines: Mapping[str, EngineStats] = field(default_factory=dict)
    """Reports of the engines at the last reconcile that were believed, by pod."""
    gateways: Sequence[GatewayStats] = ()
    """Reports of the gateways at the last reconcile."""
    admin_keys: Sequence[str] = ()
    """Of the engines' admin API; the first that they take is used."""
    history: History = field(default_factory=History)
    startup: StartupTimes = field(default_factory=StartupTimes)
    changes: deque[LoopDecision] = field(default_factory=lambda: deque(maxlen=KEPT_CHANGES))
    """The last decisions that changed something, oldest first."""
    num_changes: int = 0
    """How many there were in all."""
    cap_faults: CapFaults = field(default_factory=CapFaults)
    """Why engines do not hold the live cap that they were set to."""
    refused: frozenset[str] = frozenset()
    """Pods whose numbers were not believed at the last look."""
    loops_at_limit: frozenset[str] = frozenset()
    """Loops that are at their floor while too many requests are preempted, as of their last decisions."""
    load_written: float = float("-inf")
    """When the load in the status was last written, on the operator's clock."""

    @property
    def adapters(self) -> dict[str, EngineAdapter]:
        """Of the engine in each pod, by its name: during a rollout from one engine to another there are both."""
        adapters = TARGET_ADAPTERS if self.observed.is_target else ADAPTERS
        return {pod.name: adapters[pod.engine_type] for pod in self.observed.pods}

    @classmethod
    def from_status(cls, resource: LLMDeployment) -> "Fleet":
        """With what an earlier operator wrote into the status."""
        status = resource.status
        scaling = ScalingPolicy.from_spec(resource.spec)
        return cls(
            Autoscaler(scaling),
            resource=resource,
            history=History(status.get("decisions", ())),
            startup=StartupTimes.from_status(status),
        )

    @property
    def cap_in_status(self) -> int | None:
        """The live cap that was decided last, as far as the status has it."""
        return None if self.resource is None else self.resource.status.get("concurrency", {}).get("target") or None

    @property
    def target_replicas(self) -> int:
        """Replicas decided last; before that those of the Deployment, which later may be older than the decision."""
        deployment = self.observed.deployment
        if self.observed.is_target and deployment is not None:
            return deployment.spec_replicas
        if self.autoscaler.states:
            return self.autoscaler.states[REPLICAS].target
        if deployment is None:
            return self.autoscaler.policy.start_replicas
        return max(deployment.spec_replicas - len(self.observed.drained), 0)

    def record_decision(self, decision: Decision, time: str) -> tuple[Decision, tuple[LoopDecision, ...]]:
        """Record a decision made at ``time`` (RFC 3339); returns the last of each loop, and those in the history."""
        recorded = self.history.add(decision, time)
        changes = [made for made in recorded if made.action != "Hold"]
        self.changes += changes
        self.num_changes += len(changes)
        self.last_decision = decision.merge_earlier(self.last_decision)
        return self.last_decision, recorded
