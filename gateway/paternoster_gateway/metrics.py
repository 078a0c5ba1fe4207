"""The gateway's metrics, and the numbers by model that the operator reads."""

import time
import uuid
from collections import Counter as Counts
from collections.abc import Callable, Collection, Iterator, Mapping

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

from paternoster_contract import __version__
from paternoster_contract.access.identity import Lane
from paternoster_contract.metrics import BUILD
from paternoster_contract.routing import ModelRoute
from paternoster_contract.shares.places import SharedPlaces
from paternoster_contract.shares.rows import Sized, rows_beyond_share
from paternoster_contract.stats import MOST_MODEL_BYTES, MOST_MODELS, GatewayModelStats, GatewayStats
from paternoster_contract.supervise import failures
from paternoster_http.open_requests import refusals

MOST_MODELS_WITH_SERIES = 500
"""Models that have series of their own, shared out by namespace; requests of further ones are counted for no model."""
_ROW_BYTES = 512
"""Bytes of a model in /stats without its names, at most; of these a character has six bytes at most."""
_BUCKETS = (.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160)  # fmt: skip


class GatewayTaskFailures:
    """A counter of the background tasks of this process that failed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, "Unexpected ends of background tasks.", labels=["task"])
        for task, count in failures.items():
            family.add_metric([task], count)
        yield family


class ShareRefusals:
    """A counter of the requests that were refused or given up beyond their sender's share of a port."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "paternoster_gateway_share_refusals",
            "Requests refused or given up beyond their sender's share of a port.",
            labels=["resource"],
        )
        for resource, count in refusals.items():
            family.add_metric([resource], count)
        yield family


class GatewayMetrics:
    """The metrics of one gateway, in a registry of their own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        build = Info(BUILD, "Version of the program.", registry=self.registry)
        build.info({"component": "gateway", "version": __version__})
        self.registry.register(GatewayTaskFailures("paternoster_gateway_task_failures"))
        self.registry.register(ShareRefusals())
        self.instance = uuid.uuid4().hex
        self._routes: Mapping[str, ModelRoute] = {}
        """Routes of the table that was read last, by model."""
        self._places = SharedPlaces[str](MOST_MODELS_WITH_SERIES)
        """Models with series of their own: those that had a request."""
        self.in_flight: Counts[str] = Counts()
        """Requests by model, held ones included; without lines of batches."""
        self.batch_in_flight: Counts[str] = Counts()
        """Lines of batches by model."""
        self._last_requests: dict[str, tuple[str, float]] = {}
        """Fleet of the request that ended last, and when it ended, by model."""
        self.totals: Counts[str] = Counts()
        self.failures: Counts[str] = Counts()
        prefix = "paternoster_gateway_"
        self.requests = Counter(
            f"{prefix}requests", "Answers by model, route and status.", ["model", "route", "code"],
            registry=self.registry,
        )  # fmt: skip
        self.retries = Counter(
            f"{prefix}retries", "Attempts repeated elsewhere, by reason.", ["reason"], registry=self.registry
        )
        self.retries_denied = Counter(
            f"{prefix}retries_denied", "Attempts not repeated: the retry budget was used up.", registry=self.registry
        )
        self.quarantined = Counter(
            f"{prefix}requests_quarantined", "Requests refused: a replica stopped while it had the same body.",
            registry=self.registry,
        )  # fmt: skip
        self.broken = Counter(
            f"{prefix}broken_streams",
            "Answers a replica broke off and no other continued.",
            ["model"],
            registry=self.registry,
        )
        self.continued = Counter(
            f"{prefix}continued_streams", "Streams a replica broke off or handed over that went on at another one.",
            ["model", "reason"], registry=self.registry,
        )  # fmt: skip
        without = Gauge(
            f"{prefix}models_without_series",
            'Models beyond their namespace\'s share of series, with the label model="".',
            registry=self.registry,
        )
        without.set_function(lambda: sum(model not in self._places for model in self.totals if model))
        self.hangs = Counter(
            f"{prefix}hangs", "Times that a replica answered no probe and was left.", registry=self.registry
        )
        self.hung_gauge = Gauge(
            f"{prefix}replicas_hung", "Replicas that get no requests until they answer a probe.", registry=self.registry
        )
        self.table_age = Gauge(
            f"{prefix}routing_table_age_seconds", "Time since an operator confirmed the routing table; 0 without one.",
            registry=self.registry,
        )  # fmt: skip
        self.table_from_copy = Gauge(
            f"{prefix}routing_table_from_copy", "1 while no operator has answered, and its last table's copy serves.",
            registry=self.registry,
        )  # fmt: skip
        self.first_byte = Histogram(
            f"{prefix}time_to_first_byte_seconds", "Arrival to the first byte of an answer.", ["model", "route"],
            buckets=_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self.cached_tokens = Counter(
            f"{prefix}cached_prompt_tokens",
            "Cached prompt tokens of answered requests: promised by the replica that reported most, captured by the "
            "choice of one, delivered by its engine.",
            ["model", "stage"],
            registry=self.registry,
        )
        self.routed_tokens = Counter(
            f"{prefix}routed_prompt_tokens", "Prompt tokens of the same requests.", ["model"], registry=self.registry
        )
        self.whole_indexes = Gauge(
            f"{prefix}replicas_indexed", "Replicas whose stream of cached text is read.", registry=self.registry
        )
        self.indexed_pieces = Gauge(
            f"{prefix}indexed_pieces", "Pieces of cached text in the index of all replicas.", registry=self.registry
        )
        self.refused_pieces = Gauge(
            f"{prefix}indexed_pieces_refused", "Reported pieces for which the index had no room.",
            registry=self.registry,
        )  # fmt: skip
        self.chain_faults = Counter(
            f"{prefix}text_chain_faults", "Streams of cached text that were not believed any more, by reason.",
            ["reason"], registry=self.registry,
        )  # fmt: skip
        for reason in ("away", "gap", "garbage", "memory", "model", "version"):
            self.chain_faults.labels(reason)
        self.in_flight_gauge = Gauge(
            f"{prefix}requests_in_flight", "Requests at replicas.", ["model"], registry=self.registry
        )
        self.batch_gauge = Gauge(
            f"{prefix}batch_lines_in_flight", "Lines of batches at replicas.", ["model"], registry=self.registry
        )
        self.held_gauge = Gauge(
            f"{prefix}requests_held", "Requests waiting for a replica.", ["model"], registry=self.registry
        )

    def begin_request(self, model: str, lane: Lane = Lane.ONLINE) -> None:
        """Count a request; one of another lane than the first is no traffic by which a fleet is scaled."""
        if lane is Lane.ONLINE:
            self.totals[model] += 1
            self.in_flight[model] += 1
        else:
            self.batch_in_flight[model] += 1
        self.label_of(model)

    def label_of(self, model: str) -> str:
        """``model``, for which it has series from now on; or ``""`` while its namespace has its share of them."""
        if model in self._places or not model:
            return model
        route = self._routes.get(model)
        has, evicted = self._places.claim_place(model, "" if route is None else route.namespace)
        if evicted is not None:
            self._remove_series(evicted)
        if not has:
            return ""
        self.broken.labels(model)  # from 0 on, or rate() would not see the first
        return model

    def end_request(self, model: str, fleet: str, lane: Lane = Lane.ONLINE) -> None:
        if lane is Lane.ONLINE:
            self.in_flight[model] -= 1
            self._last_requests[model] = fleet, self._clock()
        else:
            self.batch_in_flight[model] -= 1

    def count_cached_tokens(self, model: str, prompt_tokens: int, stages: Mapping[str, int]) -> None:
        """An engine has answered a prompt that was sent by its text; ``stages``: cached tokens of it by stage."""
        model = self.label_of(model)
        for stage, number in stages.items():
            self.cached_tokens.labels(model, stage).inc(number)
        self.routed_tokens.labels(model).inc(prompt_tokens)

    def _idle_seconds(self, model: str, fleet: str, refused: int) -> float | None:
        """Seconds since the last request for the fleet; 0 while there is one, None where there was none yet."""
        if self.in_flight[model] or refused:
            return 0.0
        last_fleet, ended = self._last_requests.get(model, ("", 0.0))
        return max(0.0, self._clock() - ended) if last_fleet == fleet and model in self._last_requests else None

    def retain_only(self, routes: Mapping[str, ModelRoute]) -> None:
        """Remove the series of all other models but ``""``: alerts would fire on their last values for ever."""
        self._routes = routes
        for model in [each for each in self._places if each not in routes]:
            self._places.release(model)
            self._remove_series(model)
        for counts in (self.totals, self.failures, self._last_requests):
            for model in counts.keys() - {"", *routes}:
                del counts[model]
        # Requests that still run are counted down when they end.
        for in_flight in (self.in_flight, self.batch_in_flight):
            for model in [each for each, count in in_flight.items() if count == 0 and each not in routes]:
                del in_flight[model]

    def _remove_series(self, model: str) -> None:
        for metric in (
            self.requests, self.broken, self.continued, self.first_byte, self.in_flight_gauge, self.held_gauge,
            self.batch_gauge, self.cached_tokens, self.routed_tokens,
        ):  # fmt: skip
            metric.remove_by_labels({"model": model})

    def set_gauges(self, held: Callable[[str], int]) -> None:
        """Requests of each model that has series, as of now; ``held``: those of a model that wait for a replica."""
        for model in self._places:
            waiting = held(model)
            self.held_gauge.labels(model).set(waiting)
            self.in_flight_gauge.labels(model).set(max(0, self.in_flight[model] - waiting))
            self.batch_gauge.labels(model).set(self.batch_in_flight[model])

    def build_stats(
        self,
        routes: Mapping[str, ModelRoute],
        held: Callable[[str], int],
        refused: Callable[[str], int],
        only: Collection[str] | None = None,
    ) -> GatewayStats:
        """The numbers of the models of ``routes``, or of ``only`` some; as many as have room, shared out by namespace.

        ``held`` and ``refused`` count a model's requests that wait for a replica, and that were rejected a moment ago.
        """
        wanted = routes if only is None else only
        names = [name for name in wanted if name in routes]
        sizes = [_ROW_BYTES + 6 * sum(map(len, (name, *routes[name].aliases))) for name in names]
        if len(names) > MOST_MODELS or sum(sizes) > MOST_MODEL_BYTES:
            for capacity, unit in ((MOST_MODEL_BYTES, 0), (MOST_MODELS, 1)):
                sized = [
                    # What a fleet waits for comes first, then what it had.
                    Sized(
                        name,
                        routes[name].namespace,
                        unit or size,
                        (not held(name), not refused(name), not self.totals[name]),
                    )
                    for name, size in zip(names, sizes, strict=True)
                ]
                beyond = rows_beyond_share(sized, capacity)
                sizes = [size for name, size in zip(names, sizes, strict=True) if name not in beyond]
                names = [name for name in names if name not in beyond]
        models = {
            name: GatewayModelStats(
                fleet=routes[name].fleet,
                aliases=routes[name].aliases,
                in_flight=max(0, self.in_flight[name] - held(name)),
                held=held(name),
                batch_in_flight=self.batch_in_flight[name],
                refused=refused(name),
                idle_seconds=self._idle_seconds(name, routes[name].fleet, refused(name)),
                requests_total=self.totals[name],
                failed_total=self.failures[name],
            )
            for name in names
        }
        left_out = len(wanted) - len(names)
        return GatewayStats(instance=self.instance, time=time.time(), models=models, left_out=left_out)
