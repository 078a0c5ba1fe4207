"""The operator's own metrics."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from paternoster_operator.cluster.port import Key
from paternoster_operator.scaling.decision import Decision, LoopDecision
from paternoster_operator.scaling.signals import Signals

_OBJECT = ("namespace", "name")


class OperatorMetrics:
    """One registry for one operator; series of a deleted object are removed with it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconciles = self._counter("reconciles", "Reconciles by outcome.", "outcome")
        self.reconcile_seconds = Histogram(
            "paternoster_operator_reconcile_seconds", "Duration of a reconcile.", registry=self.registry
        )
        self.leading = Gauge(
            "paternoster_operator_leading", "1 while this operator acts, 0 while another does.", registry=self.registry
        )
        self.failures = self._counter("reconcile_failures", "Looks that could not do all.", *_OBJECT, "reason")
        self.decisions = self._counter(
            "decisions",
            "Decisions of the scaling law: changes, and each beginning to hold or to advise for another reason.",
            *_OBJECT,
            "loop",
            "action",
            "reason",
        )
        self._gauges = {
            key: self._gauge(key, help_)
            for key, help_ in (
                ("desired_replicas", "Replicas aimed at."),
                ("recommended_replicas", "Replicas that the law asked for before limits."),
                ("ready_replicas", "Replicas that serve."),
                ("pending_replicas", "Replicas on their way."),
                ("live_cap", "Live cap that every engine is told."),
                ("recommended_live_cap", "Live cap that the law asked for before limits."),
                ("demand_requests", "Running, waiting and held requests."),
                ("capacity_requests", "Sum of the live caps of serving replicas."),
                ("preemption_ratio", "Preempted over finished requests in the window."),
                ("kv_cache_usage_ratio", "Mean share of KV blocks in use."),
                ("generation_tokens_per_second", "Tokens generated per second by the fleet."),
                ("metrics_fresh", "1 while every serving replica reports."),
                ("startup_seconds", "Time from a pod's creation until it serves, weighted average; 0 while unknown."),
            )
        }

    def observe(self, key: Key, signals: Signals, standing: Decision, news: Sequence[LoopDecision], ready: int) -> None:
        """Take in one reconcile: the last word of each loop, and what of it was said for the first time."""
        state = standing.state
        values: dict[str, float] = {
            "desired_replicas": state.replicas,
            "recommended_replicas": standing.replicas.recommended if standing.replicas else state.replicas,
            "ready_replicas": ready,
            "pending_replicas": signals.pending,
            "live_cap": state.cap,
            "recommended_live_cap": standing.concurrency.recommended if standing.concurrency else state.cap,
            "demand_requests": signals.demand,
            "capacity_requests": signals.capacity,
            "preemption_ratio": signals.preemption_rate,
            "kv_cache_usage_ratio": signals.kv_usage,
            "generation_tokens_per_second": signals.generation_tokens_per_second,
            "metrics_fresh": float(signals.fresh),
            "startup_seconds": signals.startup_seconds or 0.0,
        }
        for name, value in values.items():
            self._gauges[name].labels(key.namespace, key.name).set(value)
        for made in news:
            self.decisions.labels(key.namespace, key.name, made.loop, made.action, made.reason.value).inc()

    def forget(self, key: Key) -> None:
        for gauge in self._gauges.values():
            gauge.remove_by_labels({"namespace": key.namespace, "name": key.name})
        for counter in (self.decisions, self.failures):
            counter.remove_by_labels({"namespace": key.namespace, "name": key.name})

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"paternoster_operator_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"paternoster_operator_{name}", text, _OBJECT, registry=self.registry)
