"""Find the bottleneck of an operator by two samples of its own metrics a few seconds apart. Pure.

Each :class:`Check` compares one figure with its limit. Causes come before what follows of them: the first finding is
the bottleneck.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from paternoster_contract.routing_rows import MOST_BYTES

PREFIX = "paternoster_operator_"
_PROCESS = ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds")
_FAILED_CODES = frozenset({"0", *(str(code) for code in range(500, 600))})
_EVENTS = frozenset({"ADDED", "MODIFIED", "DELETED"})
Figures = Mapping[str, float]
"""Values by what they are of, such as a kind of objects; by the empty text where there is one."""


@dataclass(frozen=True, slots=True)
class OperatorSample:
    """The metrics of one operator at one moment."""

    at: float
    """Seconds, on a clock that both samples have in common."""
    series: Mapping[str, Mapping[frozenset[tuple[str, str]], float]]
    """Values by the name of the metric and its labels."""

    @classmethod
    def parse(cls, text: str, at: float) -> "OperatorSample":
        """Read an answer of ``/metrics``; raises ``ValueError`` for one that is no operator's."""
        names = tuple({metric for check in CHECKS for metric in check.metrics})
        wanted = (f"{PREFIX}leading", *(f"{PREFIX}{name}" for name in names), *_PROCESS)
        # Series of fleets, which are most of a page, are not parsed.
        lines = "\n".join(line for line in text.splitlines() if line.startswith(wanted))
        series: dict[str, dict[frozenset[tuple[str, str]], float]] = defaultdict(dict)
        for family in text_string_to_metric_families(lines + "\n"):
            for each in family.samples:
                if isfinite(each.value):
                    series[each.name][frozenset(each.labels.items())] = each.value
        if f"{PREFIX}leading" not in series:
            raise ValueError(f"has no {PREFIX}leading among its metrics: this is no operator's address")
        return cls(at, series)


@dataclass(frozen=True, slots=True)
class Reading:
    """Two samples of one operator, and what its pod may use."""

    name: str
    before: OperatorSample
    after: OperatorSample
    shard: str | None = None
    """None where not all operators of its shard are read."""
    cpus: float | None = None
    memory_bytes: float | None = None

    @property
    def leads(self) -> bool:
        return self.find_gauge("leading").get("", 0) > 0

    def find_gauge(self, metric: str, *by: str) -> Figures:
        """The last values of a gauge, the greatest of each group of labels."""
        found: dict[str, float] = {}
        for labels, value in self.after.series.get(PREFIX + metric, {}).items():
            group = _join_labels(labels, by)
            found[group] = max(value, found.get(group, value))
        return found

    def find_increase(self, metric: str, *by: str, **only: Collection[str]) -> Figures:
        """The growth of a counter between the samples; one that fell, or whose process is another, began at 0."""
        before = {} if self._is_restarted() else self.before.series.get(metric, {})
        found: dict[str, float] = defaultdict(float)
        for labels, value in self.after.series.get(metric, {}).items():
            if all(dict(labels).get(name) in values for name, values in only.items()):
                since = before.get(labels, 0.0)
                found[_join_labels(labels, by)] += value - since if value >= since else value
        return found

    def find_rate(self, metric: str, *by: str, **only: Collection[str]) -> Figures:
        """The growth of a counter between the samples, by the second."""
        seconds = max(self.after.at - self.before.at, 0.001)
        return {of: grown / seconds for of, grown in self.find_increase(PREFIX + metric, *by, **only).items()}

    def find_mean(self, metric: str, *by: str) -> Figures:
        """The mean of what a histogram took in between the samples, where it took in something."""
        sums = self.find_increase(f"{PREFIX}{metric}_sum", *by)
        counts = self.find_increase(f"{PREFIX}{metric}_count", *by)
        return {of: sums.get(of, 0.0) / count for of, count in counts.items() if count > 0}

    def find_longest(self, metric: str) -> Figures:
        """A lower bound of the longest time that a histogram took in between the samples: an edge of its buckets."""
        grown = self.find_increase(f"{PREFIX}{metric}_bucket", "le")
        edges = sorted((float(edge), count) for edge, count in grown.items())
        total = edges[-1][1] if edges else 0.0
        reached = [edge for edge, count in edges if isfinite(edge) and count < total]
        return {"": reached[-1] if reached else 0.0} if total > 0 else {}

    def find_share(self, metric: str, of: str, *by: str, **only: Collection[str]) -> Figures:
        """The growth of a counter over that of ``of``, where that grew."""
        part, whole = self.find_increase(PREFIX + metric, *by, **only), self.find_increase(PREFIX + of, *by)
        return {group: part.get(group, 0.0) / count for group, count in whole.items() if count > 0}

    def find_late_share(self) -> Figures:
        """Late looks over the scheduled ones that began, where any did."""
        late = self.find_increase(f"{PREFIX}looks_late_total").get("", 0.0)
        begun = self.find_increase(f"{PREFIX}queue_wait_seconds_count", kind={"scheduled"}).get("", 0.0)
        return {"": late / begun} if begun > 0 else {}

    def find_cpu_share(self) -> Figures:
        """Processor time over what one process can use: one core, or less where its limit is."""
        seconds = max(self.after.at - self.before.at, 0.001)
        return {of: used / seconds / min(self.cpus or 1.0, 1.0) for of, used in self.find_increase(_PROCESS[0]).items()}

    def find_memory_share(self) -> Figures:
        """Resident memory over the pod's limit; of nothing where that is not known."""
        used = self.after.series.get(_PROCESS[1], {}).values()
        return {"": max(used) / self.memory_bytes} if used and self.memory_bytes else {}

    def _is_restarted(self) -> bool:
        before, after = (sample.series.get(_PROCESS[2], {}) for sample in (self.before, self.after))
        return before != after


def _join_labels(labels: frozenset[tuple[str, str]], by: Sequence[str]) -> str:
    values = dict(labels)
    return " ".join(values.get(name, "") for name in by)


def _show_seconds(value: float) -> str:
    return f"{value:.3g} s"


def _show_share(value: float) -> str:
    return f"{100 * value:.0f}%"


def _show_rate(value: float) -> str:
    return f"{value:.3g} a second"


def _show_bytes(value: float) -> str:
    return f"{value / 2**20:.3g} MiB a second"


def _show_count(value: float) -> str:
    return f"{value:g}"


@dataclass(frozen=True, slots=True)
class Check:
    """One figure of an operator, its limit, and what to do beyond it."""

    part: str
    """The part of the operator that a finding is about."""
    figure: str
    """Name of the figure."""
    metrics: Sequence[str]
    """Metrics that it is made of, without their prefix and what histograms add."""
    measure: Callable[[Reading], Figures]
    limit: float
    """The greatest value that is well."""
    show: Callable[[float], str]
    means: str
    remedy: str


_REMEDY_OF_QUEUE = (
    "mend what is named above; where nothing is, raise operator.shards (docs/runbooks/PaternosterOperatorBehind.md)"
)
CHECKS: Sequence[Check] = (
    Check(
        "api server", "requests refused with 429", ["api_requests_total"],
        lambda r: r.find_rate("api_requests_total", "method", "resource", code={"429"}), 0, _show_rate,
        "The API server limits the operator, which sends nothing for as long as each answer asks.",
        "see docs/runbooks/PaternosterOperatorThrottled.md; the chart's operator.flowSchemas.priorityLevel chooses "
        "another priority level",
    ),
    Check(
        "api server", "requests answered with 5xx or not at all", ["api_requests_total"],
        lambda r: r.find_rate("api_requests_total", "method", "resource", code=_FAILED_CODES), 0, _show_rate,
        "The API server fails or cannot be reached, so that children and statuses are written late.",
        "see the log of the API server and of etcd, and operator.networkPolicy.apiServerPorts of the chart",
    ),
    Check(
        "api server", "mean time to an answer", ["api_request_seconds"],
        lambda r: r.find_mean("api_request_seconds"), 0.5, _show_seconds,
        "Each write of a look waits for the API server, and with it the worker that looks.",
        "see the load of the API server and of etcd; the operator only waits",
    ),
    Check(
        "watches", "watches that fail", ["watch_up"],
        lambda r: {of: 1 - up for of, up in r.find_gauge("watch_up", "kind", "namespace").items()}, 0, _show_count,
        "What the operator has of these objects is out of date, and it holds their fleets as they are.",
        "see docs/runbooks/PaternosterWatchFailing.md",
    ),
    Check(
        "watches", "events received", ["watch_objects_total"],
        lambda r: r.find_rate("watch_objects_total", "kind", event=_EVENTS), 200, _show_rate,
        "Another writer changes these objects again and again, and the operator parses each change.",
        "find the writer in the audit log of the API server",
    ),
    Check(
        "watches", "listed objects dropped as unchanged", ["watch_objects_dropped_total"],
        lambda r: r.find_rate("watch_objects_dropped_total", "kind"), 200, _show_rate,
        "Watches end and list all objects again, most of which are as they were.",
        "see docs/runbooks/PaternosterWatchFailing.md for why they end",
    ),
    Check(
        "watches", "bytes of lists", ["watch_bytes_total"],
        lambda r: r.find_rate("watch_bytes_total", "kind", request={"list"}), 4 * 2**20, _show_bytes,
        "The operator lists objects for so long that looks and watches wait for their bytes.",
        "raise operator.shards of the chart: each shard lists its own objects alone",
    ),
    Check(
        "processor", "processor time, of one core or the pod's limit", [],
        lambda r: r.find_cpu_share(), 0.85, _show_share,
        "The operator uses all processor time that one process can, and every look waits for it.",
        "raise operator.resources.limits.cpu to 1 where it is less, or else operator.shards",
    ),
    Check(
        "memory", "resident memory, of the pod's limit", [],
        lambda r: r.find_memory_share(), 0.85, _show_share,
        "The operator is close to the memory at which the kernel ends it.",
        "raise operator.resources.limits.memory, or operator.shards: each shard caches its own objects alone",
    ),
    Check(
        "event loop", "longest silence, at least", ["event_loop_silence_seconds"],
        lambda r: r.find_longest("event_loop_silence_seconds"), 0.25, _show_seconds,
        "One piece of work kept all others of the process waiting, such as a list, a large table or a throttled CPU.",
        "raise operator.resources.limits.cpu, or operator.shards; py-spy shows which work it is (docs/debugging.md)",
    ),
    Check(
        "scrapes", "polls that fail", ["scrapes_total"],
        lambda r: r.find_share("scrapes_total", "scrapes_total", "target", outcome={"failed"}), 0.1, _show_share,
        "Engines or gateways do not answer, so that limits and replicas stay where they are.",
        "see docs/runbooks/PaternosterMetricsStale.md: most often a NetworkPolicy stands between",
    ),
    Check(
        "scrapes", "mean time of a poll", ["scrape_seconds"],
        lambda r: r.find_mean("scrape_seconds", "target"), 1.0, _show_seconds,
        "Each look waits for the slowest of its engines and gateways, up to 2 s.",
        "see the load of the slow engines with 'paternoster status NAME', and NetworkPolicies that drop packets",
    ),
    Check(
        "writes", "children written over others' edits", ["writes_total"],
        lambda r: r.find_rate("writes_total", "kind", "reason", reason={"Drifted", "ForeignFields"}), 0.5, _show_rate,
        "Another controller edits the fleets' children, and the operator sets them back each time.",
        "find the controller in the audit log of the API server, and exclude these objects from it",
    ),
    Check(
        "writes", "objects written", ["writes_total"],
        lambda r: r.find_rate("writes_total", "kind", "reason"), 40, _show_rate,
        "The operator writes more than one API server should have to take from it for long.",
        "after an edit of many fleets wait; else see what changes them, by kind and reason, in docs/monitoring.md",
    ),
    Check(
        "routing table", "size, of the most that gateways read", ["routes_bytes"],
        lambda r: {of: size / MOST_BYTES for of, size in r.find_gauge("routes_bytes").items()}, 0.8, _show_share,
        "The routing table is close to the size beyond which fleets get no row.",
        "shorten lists of keys and aliases, or install the chart a second time, for some of the namespaces",
    ),
    Check(
        "routing table", "fleets without room", ["routes_left_out"],
        lambda r: r.find_gauge("routes_left_out"), 0, _show_count,
        "Gateways answer 404 for these fleets: their namespace needs more than its share of the table.",
        "see the condition Routed of the fleets that 'paternoster get -A' shows, and docs/limits.md",
    ),
    Check(
        "routing table", "fleets whose row cannot be built", ["routes_unread"],
        lambda r: r.find_gauge("routes_unread"), 0, _show_count,
        "Gateways route these fleets by the last row that they got.",
        "the operator's log names each fleet and why, most often a Secret of keys that cannot be read",
    ),
    Check(
        "routing table", "shards that do not answer", ["shards_unread"],
        lambda r: r.find_gauge("shards_unread"), 0, _show_count,
        "Rows of another shard's fleets are as they were last.",
        "see docs/runbooks/PaternosterOperatorDown.md",
    ),
    Check(
        "record of names", "record not read", ["name_record_read"],
        lambda r: {of: 1 - read for of, read in r.find_gauge("name_record_read").items()}, 0, _show_count,
        "No new fleet gets its served name, and new gateways get no routing table.",
        "see the operator's log for why the ConfigMap with -names behind the Lease's name cannot be read",
    ),
    Check(
        "record of names", "reads and writes that failed", ["name_record_faults_total"],
        lambda r: r.find_increase(f"{PREFIX}name_record_faults_total", "reason"), 0, _show_count,
        "Names that fleets claim are decided late.",
        "let the operator get, create and update the ConfigMap with -names behind the Lease's name",
    ),
    Check(
        "looks", "looks that fail", ["reconciles_total"],
        lambda r: r.find_share("reconciles_total", "reconciles_total", outcome={"error"}), 0.05, _show_share,
        "Fleets whose looks fail keep their replicas and limits, and are looked at again and again.",
        "see docs/runbooks/PaternosterReconcileErrors.md",
    ),
    Check(
        "work queue", "longest time that a fleet waits", ["queue_oldest_seconds"],
        lambda r: r.find_gauge("queue_oldest_seconds", "kind"), 10, _show_seconds,
        "Fleets wait longer for a look than two periods: replicas and limits follow demand late.",
        _REMEDY_OF_QUEUE,
    ),
    Check(
        "work queue", "mean time in the queue", ["queue_wait_seconds"],
        lambda r: r.find_mean("queue_wait_seconds", "kind"), 2.5, _show_seconds,
        "Looks begin half a period late on average.",
        _REMEDY_OF_QUEUE,
    ),
    Check(
        "work queue", "late looks, of those scheduled", ["looks_late_total", "queue_wait_seconds"],
        lambda r: r.find_late_share(), 0.05, _show_share,
        "Looks that no change asked for come more than half a period late.",
        _REMEDY_OF_QUEUE,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """A part of one operator that is beyond its limit, or that cannot be read."""

    part: str
    operator: str
    seen: str
    means: str
    remedy: str
    figure: str = ""
    values: Figures = field(default_factory=dict)
    limit: float = nan


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Result of two samples of all operators."""

    operators: Mapping[str, str]
    """Operators that were read, and whether each leads."""
    findings: Sequence[Finding]
    """The bottleneck first."""
    worst: Mapping[str, tuple[float, str]]
    """The greatest value of each figure, and the same as text, by part and figure."""


def diagnose(readings: Sequence[Reading], unread: Mapping[str, str]) -> Diagnosis:
    """Judge all operators; ``unread`` has those that did not answer, and why."""
    findings = [*_find_unread(unread), *_find_leaderless(readings)]
    worst: dict[str, tuple[float, str]] = {}
    for check in CHECKS:
        for reading in readings:
            figures = check.measure(reading)
            if not figures:
                continue
            name, greatest = f"{check.part}: {check.figure}", max(figures.values())
            if name not in worst or greatest > worst[name][0]:
                worst[name] = (greatest, check.show(greatest))
            if beyond := {of: value for of, value in figures.items() if value > check.limit}:
                findings.append(_describe(check, reading.name, beyond))
    roles = {reading.name: "leads" if reading.leads else "stands by" for reading in readings}
    return Diagnosis(roles, findings, worst)


def _describe(check: Check, operator: str, beyond: Figures, most_shown: int = 3) -> Finding:
    ordered = sorted(beyond.items(), key=lambda each: (-each[1], each[0]))
    shown = [f"{of} {check.show(value)}".strip() for of, value in ordered[:most_shown]]
    more = f" and {len(ordered) - most_shown} more" if len(ordered) > most_shown else ""
    seen = f"{check.figure}: {', '.join(shown)}{more}; limit {check.show(check.limit)}"
    return Finding(check.part, operator, seen, check.means, check.remedy, check.figure, dict(ordered), check.limit)


def _find_unread(unread: Mapping[str, str]) -> Iterator[Finding]:
    for name, why in unread.items():
        yield Finding(
            "operator", name, f"its metrics are not read: {why}",
            "This operator may be the one that is slow, or be down.",
            "see its log and docs/runbooks/PaternosterOperatorDown.md; where a NetworkPolicy stands before it, use "
            "kubectl port-forward and --server",
        )  # fmt: skip


def _find_leaderless(readings: Sequence[Reading]) -> Iterator[Finding]:
    shards: dict[str, list[Reading]] = defaultdict(list)
    for reading in readings:
        if reading.shard is not None:
            shards[reading.shard].append(reading)
    for shard, members in sorted(shards.items()):
        if not any(member.leads for member in members):
            names = ", ".join(member.name for member in members)
            yield Finding(
                "leadership", names, f"none of them leads shard {shard}: operators that lead: 0; limit 1",
                "Nothing reconciles the fleets of this shard.",
                "wait for a Lease (15 s) after a start or an end; else see docs/runbooks/PaternosterOperatorIdle.md",
            )  # fmt: skip


def summarize_diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as one JSON document."""
    return {
        "operators": dict(diagnosis.operators),
        "findings": [
            {
                "part": each.part, "operator": each.operator, "seen": each.seen, "figure": each.figure,
                "values": dict(each.values), "limit": each.limit if isfinite(each.limit) else None,
                "means": each.means, "remedy": each.remedy,
            }
            for each in diagnosis.findings
        ],
        "figures": {name: value for name, (value, _) in diagnosis.worst.items()},
    }  # fmt: skip


def describe_operators(diagnosis: Diagnosis) -> str:
    """The operators that were read, in one line."""
    return ", ".join(f"{name} {role}" for name, role in diagnosis.operators.items())


def describe_figures(diagnosis: Diagnosis) -> str:
    """One line that says that nothing is the bottleneck, with the greatest value of each figure."""
    return "nothing is the bottleneck: " + ", ".join(f"{name} {text}" for name, (_, text) in diagnosis.worst.items())
