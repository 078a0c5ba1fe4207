"""The operator's own metrics."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.utils import floatToGoString

from paternoster_contract import __version__
from paternoster_contract.metrics import BUILD, ENGINE_METRICS
from paternoster_contract.shares.places import SharedPlaces
from paternoster_contract.stats import Unreported
from paternoster_contract.supervise import failures
from paternoster_operator.api.types.objective import Slo
from paternoster_operator.autoscaling.decision import LOOP_NAMES, Decision, LoopDecision
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.cluster.port import Key
from paternoster_operator.cluster.traffic import ApiTraffic

_OBJECT = ("namespace", "name")
MOST_FLEETS_WITH_SERIES = 1000
"""LLMDeployments that have series of their own, shared out by namespace."""
OBJECTIVES = {"ttft": "time_to_first_token_seconds", "itl": "inter_token_latency_seconds"}
"""Each objective of ``spec.slo`` and the engines' histogram that shows whether it is met."""
SILENCE_BUCKETS_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_EDGES = {metric.key: metric.buckets for metric in ENGINE_METRICS}


class TaskFailures:
    """A counter of the background tasks of this process that failed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, "Unexpected ends of background tasks.", labels=["task"])
        for task, count in failures.items():
            family.add_metric([task], count)
        yield family


class OperatorMetrics:
    """One registry for one operator; series of a deleted object are removed with it."""

    def __init__(self, traffic: ApiTraffic | None = None) -> None:
        self.registry = CollectorRegistry()
        self.traffic = traffic or ApiTraffic()
        self.traffic.register_metrics(self.registry)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        build = Info(BUILD, "Version of the program.", registry=self.registry)
        build.info({"component": "operator", "version": __version__})
        self.registry.register(TaskFailures("paternoster_operator_task_failures"))
        self.reconciles = self._add_counter("reconciles", "Reconciles by outcome.", "outcome")
        # A counter that appears with its first event hides that event from rate().
        for outcome in ("ok", "error", "handed_over"):
            self.reconciles.labels(outcome)
        self.reconcile_seconds = Histogram(
            "paternoster_operator_reconcile_seconds", "Duration of a reconcile.", registry=self.registry
        )
        self.leading = Gauge(
            "paternoster_operator_leading", "1 while this operator acts, 0 while another does.", registry=self.registry
        )
        self.shards_unread = Gauge(
            "paternoster_operator_shards_unread",
            "Other shards of which no operator gave its rows of the routing table when it was last asked.",
            registry=self.registry,
        )
        self._routes_secret_time = Gauge(
            "paternoster_operator_routes_secret_written_timestamp_seconds",
            "When this operator last wrote the copy of the routing table; 0 for never.",
            registry=self.registry,
        )
        self._routes_secret_bytes = Gauge(
            "paternoster_operator_routes_secret_bytes", "Bytes of that copy, compressed.", registry=self.registry
        )
        self.name_record_read = Gauge(
            "paternoster_operator_name_record_read",
            "1 once the record of served names is read, 0 while no new fleet can get a name for want of it.",
            registry=self.registry,
        )
        self.routes_rows, self.routes_bytes, self.routes_unread, self.routes_left_out = (
            Gauge(f"paternoster_operator_routes_{name}", f"{text}, as it was last built.", registry=self.registry)
            for name, text in (
                ("rows", "Rows of the routing table"),
                ("bytes", "Bytes of the routing table"),
                ("unread", "LLMDeployments whose row of the routing table could not be built"),
                ("left_out", "LLMDeployments for whose row the routing table has no room"),
            )
        )
        self._scrapes = self._add_counter(
            "scrapes", "Polls of engines and gateways for their numbers, by outcome: ok or failed.", "target", "outcome"
        )
        self._scrape_seconds = Histogram(
            "paternoster_operator_scrape_seconds", "Duration of such a poll.", ("target",), registry=self.registry
        )
        for target in ("engine", "gateway"):
            self._scrape_seconds.labels(target)
            for outcome in ("ok", "failed"):
                self._scrapes.labels(target, outcome)
        self.event_loop_silence = Histogram(
            "paternoster_operator_event_loop_silence_seconds",
            "How much later than it was due the event loop served a timer, of which it has four a second.",
            buckets=SILENCE_BUCKETS_SECONDS,
            registry=self.registry,
        )
        self._name_record_faults = self._add_counter(
            "name_record_faults", "Times that the record of served names could not be used.", "reason"
        )
        for reason in ("read", "write", "invalid"):
            self._name_record_faults.labels(reason)
        self._places = SharedPlaces[Key](MOST_FLEETS_WITH_SERIES)
        """Fleets with series of their own."""
        self._without_place: set[Key] = set()
        without = Gauge(
            "paternoster_operator_fleets_without_series",
            "LLMDeployments that have no series, because their namespace has its share of them.",
            registry=self.registry,
        )
        without.set_function(lambda: len(self._without_place))
        self._watch_up = Gauge(
            "paternoster_operator_watch_up",
            "1 while the API server answers the watch of this kind in this namespace ('*' for all), 0 while it fails.",
            ("kind", "namespace"),
            registry=self.registry,
        )
        self._watch_failures = self._add_counter(
            "watch_failures", "Attempts to list or watch that failed.", "kind", "namespace"
        )
        self.failures = self._add_counter("reconcile_failures", "Looks that could not do all.", *_OBJECT, "reason")
        self.reports_refused = self._add_counter(
            "reports_refused", "Numbers of engines that were not believed, by the field.", *_OBJECT, "reason"
        )
        self.decisions = self._add_counter(
            "decisions",
            "Decisions of the scaling law: changes, and each beginning to hold or to advise for another reason.",
            *_OBJECT,
            "loop",
            "action",
            "reason",
        )
        self.condition = self._add_gauge("condition", "1 for each condition as it is now.", "type", "status", "reason")
        self.slo = self._add_gauge(
            "slo_seconds",
            "Limits of spec.slo, and the first bucket of the engines' histogram that reaches each.",
            "objective",
            "bucket",
        )
        self._by_fleet = (self.condition, self.slo, self.decisions, self.failures, self.reports_refused)
        self._conditions: dict[Key, set[tuple[str, str, str]]] = {}
        self._objectives: dict[Key, Slo] = {}
        self._gauges = {
            key: self._add_gauge(key, help_)
            for key, help_ in (
                ("ready_replicas", "Replicas that serve."),
                ("pending_replicas", "Replicas on their way."),
                ("demand_requests", "Running, waiting and held requests."),
                ("capacity_requests", "Sum of the live caps of serving replicas."),
                ("preemption_ratio", "Preempted over finished requests in the window."),
                ("kv_cache_usage_ratio", "Mean share of KV blocks in use."),
                ("generation_tokens_per_second", "Tokens generated per second by the fleet."),
                ("metrics_fresh", "1 while every serving replica reports."),
                ("startup_seconds", "Time from a pod's creation until it serves, weighted average; 0 while unknown."),
            )
        }
        for loop in LOOP_NAMES:
            self._add_loop(loop)

    def observe(
        self, key: Key, signals: Signals, last_decision: Decision, recorded: Sequence[LoopDecision], ready: int
    ) -> None:
        """Take in one reconcile: the last decision of each loop, and those that the history has now."""
        if not self._claim_series(key):
            return
        reported = signals.reported_number
        values: dict[str, float | None] = {
            "ready_replicas": ready,
            "pending_replicas": signals.pending,
            "demand_requests": reported(signals.demand),
            "capacity_requests": reported(sum(report.live_cap for report in signals.reports)),
            "preemption_ratio": reported(signals.preemption_rate, Unreported.PREEMPTIONS),
            "kv_cache_usage_ratio": reported(signals.kv_usage, Unreported.KV_BLOCKS),
            "generation_tokens_per_second": reported(signals.generation_tokens_per_second),
            "metrics_fresh": float(signals.fresh),
            "startup_seconds": signals.startup_seconds or 0.0,
        }
        for name, value in values.items():
            if value is None:  # 0 would be a number of engines that report none
                with suppress(KeyError):  # it had none
                    self._gauges[name].remove(key.namespace, key.name)
            else:
                self._gauges[name].labels(key.namespace, key.name).set(value)
        for loop, target in last_decision.targets.items():
            decision = last_decision.get(loop)
            recommended = target if decision is None else decision.recommended
            self._add_loop(loop)
            self._gauges[f"desired_{snake_case(loop)}"].labels(*key).set(target)
            self._gauges[f"recommended_{snake_case(loop)}"].labels(*key).set(recommended)
        for made in recorded:
            self.decisions.labels(key.namespace, key.name, made.loop, made.action, made.reason.value).inc()

    def _add_loop(self, loop: str) -> None:
        for name, text in (("desired", "What the loop wants."), ("recommended", "The same before limits.")):
            key = f"{name}_{snake_case(loop)}"
            if key not in self._gauges:
                self._gauges[key] = self._add_gauge(key, text)

    def observe_scrape(self, target: str, succeeded: bool, seconds: float) -> None:
        """Take in a poll of an ``engine`` or a ``gateway``."""
        self._scrapes.labels(target, "ok" if succeeded else "failed").inc()
        self._scrape_seconds.labels(target).observe(seconds)

    def observe_watch(self, kind: str, namespace: str, works: bool) -> None:
        """Take in that a watch failed, or that it works again."""
        self._watch_up.labels(kind, namespace).set(works)
        failures = self._watch_failures.labels(kind, namespace)  # a series that begins at 1 hides that from rate()
        if not works:
            failures.inc()

    def observe_routes_secret(self, written_at: float, size: int) -> None:
        """Take in a write of the routing table's copy: Unix seconds and bytes."""
        self._routes_secret_time.set(written_at)
        self._routes_secret_bytes.set(size)

    def count_name_record_fault(self, reason: str) -> None:
        """Count one: ``read`` and ``write`` failed, ``invalid`` is not what an operator wrote."""
        self._name_record_faults.labels(reason).inc()

    def observe_conditions(self, key: Key, conditions: Sequence[Mapping[str, Any]]) -> None:
        """Take in the conditions of a status; those that are gone, or have another status or reason, end."""
        if not self._claim_series(key):
            return
        now: set[tuple[str, str, str]] = {(each["type"], each["status"], each["reason"]) for each in conditions}
        before = self._conditions.get(key, set())
        for ended in before - now:
            self.condition.remove(*key, *ended)
        for begun in now - before:
            self.condition.labels(*key, *begun).set(1)
        self._conditions[key] = now

    def observe_slo(self, key: Key, slo: Slo) -> None:
        """Export the limits. A histogram has no number between two edges: the bucket is the next one above."""
        if not self._claim_series(key) or self._objectives.get(key) == slo:
            return
        self._objectives[key] = slo
        self.slo.remove_by_labels(_label_values(key))
        for objective, limit in (("ttft", slo.ttft_p95_milliseconds), ("itl", slo.itl_p95_milliseconds)):
            if limit is not None:
                seconds = limit / 1000
                edges = (*_EDGES[OBJECTIVES[objective]], math.inf)
                edge = next(edge for edge in edges if edge >= seconds)
                bucket = floatToGoString(edge)  # type: ignore[no-untyped-call]
                self.slo.labels(*key, objective, bucket).set(seconds)

    def remove_series(self, key: Key) -> None:
        """End every series of ``key``."""
        self._without_place.discard(key)
        if key not in self._places:
            return
        self._places.release(key)
        self._remove_labels(key)

    def count_failure(self, key: Key, reason: str) -> None:
        """A reconcile could not do all."""
        if self._claim_series(key):
            self.failures.labels(*key, reason).inc()

    def count_refused_report(self, key: Key, field: str) -> None:
        """The numbers of an engine were not believed."""
        if self._claim_series(key):
            self.reports_refused.labels(*key, field).inc()

    def _claim_series(self, key: Key) -> bool:
        """Whether the fleet has series; one of a namespace that has more of them may lose its own for it."""
        if key in self._places:
            return True
        has, evicted = self._places.claim_place(key, key.namespace)
        if evicted is not None:
            self._remove_labels(evicted)
            self._without_place.add(evicted)
        (self._without_place.discard if has else self._without_place.add)(key)
        return has

    def _remove_labels(self, key: Key) -> None:
        for metric in (*self._gauges.values(), *self._by_fleet):
            metric.remove_by_labels(_label_values(key))
        self._conditions.pop(key, None)
        self._objectives.pop(key, None)

    def forget_all(self) -> None:
        """End every series of every LLMDeployment: another operator exports them now."""
        for metric in (*self._gauges.values(), *self._by_fleet):
            metric.clear()
        self._places.clear()
        self._without_place.clear()
        self._conditions.clear()
        self._objectives.clear()

    def _add_counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"paternoster_operator_{name}", text, labels, registry=self.registry)

    def _add_gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"paternoster_operator_{name}", text, (*_OBJECT, *labels), registry=self.registry)


def snake_case(loop: str) -> str:
    """A loop's name as in metrics: ``live_cap`` for ``LiveCap``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", loop).lower()


def _label_values(key: Key) -> dict[str, str]:
    return {"namespace": key.namespace, "name": key.name}
