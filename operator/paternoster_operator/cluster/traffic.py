"""Metrics of what the operator reads from the API server, writes to it, and has waiting in its own queue."""

from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from paternoster_operator.queue import QUEUED_KINDS, SCHEDULED, WorkQueue

WAIT_BUCKETS_SECONDS = (0.005, 0.02, 0.1, 0.3, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

REQUEST_BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ApiTraffic:
    """Counters of one operator, without the names of objects: their number depends on kinds alone."""

    def __init__(self) -> None:
        self._objects = Counter(
            "paternoster_operator_watch_objects",
            "Objects that lists (event LISTED) and watches sent, by the event.",
            ("kind", "event"),
            registry=None,
        )
        self._unchanged = Counter(
            "paternoster_operator_watch_objects_dropped",
            "Of the listed objects, those of a version that was handled before.",
            ("kind",),
            registry=None,
        )
        self._bytes = Counter(
            "paternoster_operator_watch_bytes",
            "Bytes of the answers to lists and watches, uncompressed.",
            ("kind", "request"),
            registry=None,
        )
        self._requests = Counter(
            "paternoster_operator_api_requests",
            "Requests that read one object, list by name, or write, by the HTTP status; code 0: no answer.",
            ("method", "resource", "code"),
            registry=None,
        )
        self._seconds = Histogram(
            "paternoster_operator_api_request_seconds",
            "Time from sending one of these requests to its whole answer, or to its failure.",
            buckets=REQUEST_BUCKETS_SECONDS,
            registry=None,
        )
        self._writes = Counter(
            "paternoster_operator_writes",
            "Children, statuses and events sent to the API server, by why they were.",
            ("kind", "reason"),
            registry=None,
        )
        self._waits = Histogram(
            "paternoster_operator_queue_wait_seconds",
            "Time that LLMDeployments were due before a look at them began.",
            ("kind",),
            buckets=WAIT_BUCKETS_SECONDS,
            registry=None,
        )
        self._oldest = Gauge(
            "paternoster_operator_queue_oldest_seconds",
            "How long the LLMDeployment has been due that waits longest.",
            ("kind",),
            registry=None,
        )
        self._late = Counter(
            "paternoster_operator_looks_late",
            "Scheduled looks that began more than half their period after they were due.",
            registry=None,
        )
        for kind in QUEUED_KINDS:
            self._waits.labels(kind)

    def register_metrics(self, registry: CollectorRegistry) -> None:
        """Register all of them with ``registry``."""
        for metric in vars(self).values():
            registry.register(metric)

    def count_object(self, kind: str, event: str) -> None:
        """Take in an object that the API server sent."""
        self._objects.labels(kind, event).inc()

    def count_unchanged(self, kind: str) -> None:
        """Take in a listed object that is not handled again."""
        self._unchanged.labels(kind).inc()

    def count_bytes(self, kind: str, request: str, length: int) -> None:
        """Take in a part of an answer; ``request`` is ``list`` or ``watch``."""
        self._bytes.labels(kind, request).inc(length)

    def count_request(self, method: str, resource: str, code: int, seconds: float) -> None:
        """Take in an answer to one of the other requests, after ``seconds``; ``code`` 0 where none came."""
        self._requests.labels(method, resource, str(code)).inc()
        self._seconds.observe(seconds)

    def count_write(self, kind: str, reason: str) -> None:
        """Take in that an object of ``kind`` was sent."""
        self._writes.labels(kind, reason).inc()

    def observe_wait(self, kind: str, seconds: float, period_seconds: float) -> None:
        """Take in the begin of a look that had been due for ``seconds``."""
        self._waits.labels(kind).observe(seconds)
        if kind == SCHEDULED and seconds > period_seconds / 2:
            self._late.inc()

    def follow_queue(self, queue: WorkQueue[Any]) -> None:
        """Export the longest wait of ``queue`` from now on."""
        for kind in QUEUED_KINDS:
            self._oldest.labels(kind).set_function(partial(queue.find_longest_wait, kind))
