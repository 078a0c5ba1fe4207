"""A vLLM whose limits no call moves: gateways hold its live cap, as the routing row says, until calls move it again."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from tests.operator.reconcile.world import (
    KEY,
    LIMITS,
    METRICS,
    RECORDED,
    VLLM,
    VLLM_LIMITS,
    VLLM_METRICS,
    PodEngine,
    World,
)  # fmt: skip

from paternoster_contract.labels import ENGINE_TYPE
from paternoster_contract.stats import GatewayModelStats, GatewayStats
from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.engines.answers import LONGEST_METRICS
from paternoster_operator.routes.row import build_route
from paternoster_operator.settings import Settings

Document = Callable[..., dict[str, Any]]
LACKING = b'{"error": {"message": "the scheduler Other has no max_num_active_reqs"}}'
NEWER = {**json.loads(VLLM_LIMITS), "version": "0.99.0"}
"""Report of a vLLM that was never recorded."""
STILL = json.dumps({**NEWER, "preemptions_total": 0}).encode()
"""Stats of an engine that preempts by another method than the one that the plugin wraps."""
CAPACITY = 32


class Site(PodEngine):
    """A vLLM, and a gateway with requests for it."""

    in_flight = 4
    """Requests that the gateway has sent it."""

    async def answer_as_gateway(self, *_: object) -> web.Response:
        model = GatewayModelStats(fleet="uid-1", in_flight=self.in_flight, held=2, requests_total=9, failed_total=0)
        return web.json_response(text=GatewayStats(instance="g", time=0, models={"ride": model}).model_dump_json())


@pytest.fixture
async def site(world: World, document: Document) -> AsyncIterator[Site]:
    site = world.engine = Site()
    site.answers = {**VLLM, "/version": 503, "/stats": site.answer_as_gateway}
    async with site.listening():
        world.scraper._gateway_url = site.url
        world.reconciler = world.new_reconciler(Settings(gateway_url=site.url))
        runtime = {"type": "VLLM", "image": "vllm:1"}
        engine = {"runtime": runtime, "maxNumSeqs": CAPACITY}
        world.cluster.resource = document(model={"source": "file:///m"}, engine=engine, concurrency={"initial": 8})
        world.cluster.shown_pods = [site.pod("a", annotations={ENGINE_TYPE: "VLLM"})]
        yield site


def row(world: World) -> Any:
    assert world.cluster.resource is not None
    return build_route(parse_resource(world.cluster.resource))


@pytest.mark.parametrize(
    ("status", "report", "why"),
    [
        (501, LACKING, "a: /paternoster/limits: HTTP 501: " + LACKING.decode()),
        (404, b"no such route", "a: /paternoster/limits: HTTP 404: no such route"),
        (
            200,
            STILL,
            "a: the plugin's preemptions_total is 0 where vllm:num_preemptions_total is 17: this vLLM does it in "
            "another way",
        ),
        (200, json.dumps({**NEWER, "capacity": None}).encode(), "a: capacity: Input should be a valid integer"),
    ],
    ids=["it lacks what the plugin sets", "it has no plugin", "counts that stand still", "an answer without limits"],
)
async def test_gateways_hold_the_cap_of_an_engine_that_cannot_be_steered(
    world: World, site: Site, status: int, report: bytes, why: str
) -> None:
    site.answers[LIMITS] = status, report
    for _ in range(3):
        await world.reconcile()
    written = world.cluster.statuses[-1]
    assert written["gatewayCap"] == {"maxInFlight": 8, "parts": {"g": 8}, "reason": why}
    assert written["engine"]["actuator"] == "Gateway"
    assert (row(world).max_in_flight, row(world).most_in_flight("g")) == (8, 8)
    assert world.cluster.condition("GatewayCap")["reason"] == "LimitsNotMovable"
    messages = [event.message for event in world.cluster.events if event.reason == "LimitsNotMovable"]
    assert messages == [f"gateways send a replica at most 8 requests at a time: {why}"]
    assert site.patches == []
    decided = world.reconciler.fleets[KEY].memory.last_decision
    assert decided is not None
    assert decided["LiveCap"].reason.value == "MetricsStale"


async def test_a_vllm_that_was_never_recorded_is_steered(world: World, site: Site) -> None:
    site.answers[LIMITS] = json.dumps({**NEWER, "live_cap": 8}).encode()
    for _ in range(3):
        await world.reconcile()
    written = world.cluster.statuses[-1]
    assert "gatewayCap" not in written
    assert (written["engine"]["version"], written["engine"]["actuator"]) == ("0.99.0", "Plugin")
    assert world.cluster.condition("MetricsFresh")["status"] == "True"
    decided = world.reconciler.fleets[KEY].memory.last_decision
    assert decided is not None
    assert decided["LiveCap"].reason.value != "MetricsStale"


async def test_names_that_a_newer_vllm_has_changed_are_in_the_condition(world: World, site: Site) -> None:
    site.answers[LIMITS] = json.dumps(NEWER).encode()
    site.answers[METRICS] = VLLM_METRICS.replace(b"vllm:prompt_tokens_cached", b"vllm:cached_tokens").replace(
        b"_queue_time", b"_wait"
    )
    for _ in range(2):
        await world.reconcile()
    fresh = world.cluster.condition("MetricsFresh")
    assert (fresh["status"], fresh["reason"]) == ("False", "ReportsRefused")
    for name in ("prompt_tokens_cached_total", "request_queue_time_seconds_sum", "request_queue_time_seconds_count"):
        assert f"vllm:{name}" in fresh["message"]


@pytest.mark.parametrize("status", [404, 501])
async def test_an_engine_without_limits_still_reports(world: World, site: Site, status: int) -> None:
    """The loops decide by its own metrics, and gateways hold the cap that they decide."""
    site.answers |= {LIMITS: (status, LACKING), "/version": b'{"version": "0.30.0"}'}
    site.answers[METRICS] = (RECORDED / "vllm-0.30-metrics.txt").read_bytes()
    for _ in range(3):
        await world.reconcile()
    written = world.cluster.statuses[-1]
    why = f"a: /paternoster/limits: HTTP {status}: {LACKING.decode()}"
    assert written["gatewayCap"] == {"maxInFlight": 8, "parts": {"g": 8}, "reason": why}
    engine = {"type": "VLLM", "version": "0.30.0", "actuator": "Gateway", "capabilities": ["liveCap"]}
    assert written["engine"] == engine
    assert world.cluster.condition("MetricsFresh")["status"] == "True"
    assert world.cluster.condition("GatewayCap")["reason"] == "LimitsNotMovable"
    sample = world.reconciler.fleets[KEY].observed.engines["a"]
    assert (sample.capacity, sample.live_cap, sample.requests_preempted_total) == (CAPACITY, 8, 9)
    decided = world.reconciler.fleets[KEY].memory.last_decision
    assert decided is not None
    assert decided["LiveCap"].reason.value != "MetricsStale"
    assert site.patches == []


async def test_an_engine_without_limits_whose_metrics_are_not_known_says_both(world: World, site: Site) -> None:
    site.answers |= {LIMITS: (501, LACKING), "/version": b'{"version": "0.99.0"}'}
    site.answers[METRICS] = VLLM_METRICS.replace(b"vllm:num_preemptions_total", b"vllm:preemptions_total")
    await world.reconcile()
    reason = world.cluster.statuses[-1]["gatewayCap"]["reason"]
    assert "has no max_num_active_reqs" in reason
    assert "/metrics has no vllm:num_preemptions_total" in reason
    assert world.cluster.condition("MetricsFresh")["reason"] == "ReportsRefused"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"# " + b"x" * 50 * 2**20, f"the answer is longer than {LONGEST_METRICS} bytes"),
        (
            VLLM_METRICS.replace(b"vllm:generation_tokens_total{", b"vllm:generation_tokens_total{a=", 1),
            "/metrics cannot be parsed",
        ),
        (re.sub(rb"(?m)^(vllm:generation_tokens_total.*) \S+$", rb"\1 NaN", VLLM_METRICS), "is nan: must be a number"),
        (b"", "/metrics has no vllm:"),
    ],
    ids=["50 MB of metrics", "metrics that cannot be parsed", "a counter that is no number", "no metrics at all"],
)
async def test_metrics_that_are_not_believed_have_a_reason_and_an_event(
    world: World, site: Site, text: bytes, why: str
) -> None:
    """The loops hold and nothing is lost: gateways hold the cap, as the condition says."""
    site.answers[METRICS] = text
    for _ in range(2):
        await world.reconcile()
    reported = [event.message for event in world.cluster.events if event.reason == "ReportsRefused"]
    assert len(reported) == 1
    assert why in reported[0]
    held = world.cluster.statuses[-1]["gatewayCap"]
    assert held["maxInFlight"] == 8
    assert why in held["reason"]
    assert world.cluster.condition("GatewayCap")["reason"] == "LimitsNotMovable"
    assert world.cluster.condition("MetricsFresh")["reason"] == "ReportsRefused"
    decided = world.reconciler.fleets[KEY].memory.last_decision
    assert decided is not None
    assert {decision.action for decision in decided.values()} == {"Hold"}


async def test_counters_that_begin_anew_within_one_process_are_believed(world: World, site: Site) -> None:
    """Counters of the API server and of the engine core, which name the same process before and after."""
    before = {**json.loads(VLLM_LIMITS), "live_cap": 8}
    site.answers[LIMITS] = json.dumps(before).encode()
    await world.reconcile()
    site.answers[LIMITS] = json.dumps({**before, "preemptions_total": 0, "requests_finished_total": 1}).encode()
    site.answers[METRICS] = re.sub(rb"(?m)^(vllm:\w+(_total|_sum|_count)\{.*) \S+$", rb"\1 0", VLLM_METRICS)
    for _ in range(2):
        await world.reconcile()
    assert world.cluster.condition("MetricsFresh")["status"] == "True"
    assert [event for event in world.cluster.events if event.reason == "ReportsRefused"] == []
    sample = world.reconciler.fleets[KEY].observed.engines["a"]
    assert (sample.requests_finished_total, sample.generation_tokens_total) == (1, 0)
    assert "gatewayCap" not in world.cluster.statuses[-1]


async def test_an_engine_that_can_be_steered_again_holds_its_cap_itself(world: World, site: Site) -> None:
    site.answers[LIMITS] = 501, LACKING
    await world.reconcile()
    site.answers[LIMITS] = VLLM_LIMITS
    await world.reconcile()
    written = world.cluster.statuses[-1]
    assert "gatewayCap" not in written
    assert written["engine"]["actuator"] == "Plugin"
    assert row(world).max_in_flight is None
    assert world.cluster.condition("GatewayCap") == {}
    assert site.patches[-1]["live_cap"] == 8


async def test_gateways_hold_the_cap_of_an_engine_that_no_call_moves(world: World, site: Site) -> None:
    """It reports 16 whatever it was set to: 8."""
    for _ in range(2):
        await world.reconcile()
        assert "gatewayCap" not in world.cluster.statuses[-1]
    await world.reconcile()
    held = world.cluster.statuses[-1]["gatewayCap"]
    assert (held["maxInFlight"], held["reason"]) == (8, "a: the live cap is not 8 after 3 calls that set it")
    await world.reconcile()
    assert len(site.patches) == 4, "the operator tries again"
    assert [event.reason for event in world.cluster.events].count("LimitsNotMovable") == 1


async def test_silence_and_an_operator_that_begins_change_nothing(world: World, site: Site) -> None:
    site.answers[LIMITS] = 501, LACKING
    await world.reconcile()
    held = world.cluster.statuses[-1]["gatewayCap"]
    site.answers[LIMITS] = 503
    await world.reconcile()
    assert world.cluster.statuses[-1]["gatewayCap"] == held
    world.reconciler.clear()
    await world.reconcile()
    assert world.cluster.statuses[-1]["gatewayCap"] == held
    assert [event.reason for event in world.cluster.events].count("LimitsNotMovable") == 1


async def test_a_cap_that_is_edited_is_the_bound(world: World, site: Site, document: Document) -> None:
    site.answers[LIMITS] = 404
    await world.reconcile()
    assert world.cluster.resource is not None
    spec = {**world.cluster.resource["spec"], "concurrency": {"initial": 3}}
    world.cluster.resource = {**world.cluster.resource, "spec": spec}
    await world.reconcile()
    assert (row(world).max_in_flight, row(world).in_flight_parts) == (3, {"g": 3})


async def test_without_a_gateway_the_cap_is_the_capacity_and_the_status_says_so(world: World, site: Site) -> None:
    world.scraper._gateway_url = None
    world.reconciler = world.new_reconciler(Settings())
    site.answers[LIMITS] = 404
    await world.reconcile()
    written = world.cluster.statuses[-1]
    assert "gatewayCap" not in written
    assert written["engine"]["actuator"] == "None"
    assert world.cluster.condition("GatewayCap")["reason"] == "NoGateway"
    assert [event.reason for event in world.cluster.events].count("NoGateway") == 1


@pytest.mark.parametrize("limits", [200, 501])
@pytest.mark.parametrize(
    ("status", "seconds", "what"),
    [
        (401, 0.0, "HTTP 401: the operator reads this path without a key: let the engine answer it without one"),
        (404, 0.0, "HTTP 404: start the engine with its metrics on, or set engine.runtime.type to the engine that runs "
                   "there"),
        (307, 0.0, "HTTP 307: redirects are not followed"),
        (500, 0.0, "HTTP 500: look at the engine's log"),
        (200, 9.0, "no answer within 0.5 s: look at the engine's load and log"),
    ],
)  # fmt: skip
async def test_metrics_that_fail_are_named_with_their_url(
    site: Site, world: World, limits: int, status: int, seconds: float, what: str
) -> None:
    """Whether the plugin is there or not: it is not what kept the numbers."""
    world.scraper._timeout_seconds = 0.5

    async def fail(*_: object) -> web.Response:
        await asyncio.sleep(seconds)
        return web.Response(status=status)

    site.answers |= {LIMITS: VLLM_LIMITS if limits == 200 else (limits, LACKING), "/version": b'{"version": "0.32.0"}'}
    site.answers[METRICS] = fail
    await world.reconcile()
    condition = world.cluster.condition("MetricsFresh")
    url = f"http://127.0.0.1:{world.engine.port}/metrics"
    assert (condition["status"], condition["reason"]) == ("False", "NoPodsReporting")
    assert condition["message"] == f"no recent numbers from a; a: GET {url}: {what}"
    assert bool(world.cluster.condition("GatewayCap")) is (limits == 501)
    site.answers[METRICS] = VLLM_METRICS
    await world.reconcile()
    assert world.cluster.condition("MetricsFresh")["status"] == "True"
