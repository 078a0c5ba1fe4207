"""A fleet of llama.cpp: read by its own metrics, its live cap held by gateways, and loops that say what is missing."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from tests.operator.reconcile.world import KEY, METRICS, RECORDED, PodEngine, World

from paternoster_contract.labels import ENGINE_TYPE
from paternoster_contract.stats import GatewayModelStats, GatewayStats
from paternoster_operator.settings import Settings

TEXT = (RECORDED / "llama-cpp-b11434-metrics.txt").read_bytes()
RUNTIME = {"type": "OpenAI", "image": "llama:1"}


class Site(PodEngine):
    """A server, and a gateway with requests for it."""

    held = requests = 0

    async def answer_as_gateway(self, *_: object) -> web.Response:
        model = GatewayModelStats(
            fleet="uid-1", in_flight=4, held=self.held, requests_total=self.requests, failed_total=0
        )
        return web.json_response(text=GatewayStats(instance="g", time=0, models={"ride": model}).model_dump_json())


@pytest.fixture
async def site(world: World, document: Callable[..., dict[str, Any]]) -> AsyncIterator[Site]:
    site = world.engine = Site()
    site.answers = {METRICS: TEXT, "/stats": site.answer_as_gateway}
    async with site.listening():
        world.scraper._gateway_url = site.url
        world.reconciler = world.new_reconciler(Settings(gateway_url=site.url))
        world.cluster.resource = document(
            model={"source": "file:///m"},
            engine={"runtime": RUNTIME, "maxNumSeqs": 4},
            concurrency={"mode": "Auto"},
            autoscaling={"maxReplicas": 4},
        )
        world.cluster.shown_pods = [site.pod("a", annotations={ENGINE_TYPE: "OpenAI"})]
        yield site


async def test_it_reports_and_gateways_hold_its_cap(world: World, site: Site) -> None:
    await world.reconcile()
    await world.reconcile()
    status = world.cluster.statuses[-1]
    assert status["gatewayCap"]["maxInFlight"] == 4
    assert status["engine"] == {"type": "OpenAI", "version": "", "actuator": "Gateway", "capabilities": ["liveCap"]}
    assert status["concurrency"] == {"capacity": 4, "target": 4, "currentMin": 4, "currentMax": 4}
    assert status["load"]["runningRequests"] == 2
    assert world.cluster.condition("MetricsFresh")["status"] == "True"
    assert world.cluster.condition("GatewayCap") == {}, "it is how such an engine is steered"
    assert [event for event in world.cluster.events if event.type == "Warning"] == []


async def test_what_it_does_not_report_is_no_0(world: World, site: Site) -> None:
    for _ in range(2):
        await world.reconcile()
    status = world.cluster.statuses[-1]
    assert status["load"].keys() == {
        "runningRequests", "waitingRequests", "heldRequests", "generationTokensPerSecond", "utilizationPercent",
        "fresh", "sampleTime",
    }  # fmt: skip
    message = "not reported: KV blocks, preemptions, recomputed tokens, requests, steps"
    assert world.cluster.condition("MetricsFresh")["message"] == message
    stable = world.cluster.condition("ConcurrencyStable")
    assert (stable["status"], stable["reason"]) == ("Unknown", "NotReported")
    decided = world.reconciler.fleets[KEY].memory.last_decision
    assert decided is not None
    assert {decided["LiveCap"].inputs[name] for name in ("preempted", "finished", "kvPeakUsage")} == {"not reported"}
    assert {decided["Replicas"].inputs[name] for name in ("preemptionRate", "finished", "kvUsage")} == {"not reported"}
    labels = {"namespace": "lifts", "name": "ride"}
    registry = world.reconciler._metrics.registry
    assert registry.get_sample_value("paternoster_operator_kv_cache_usage_ratio", labels) is None
    assert registry.get_sample_value("paternoster_operator_preemption_ratio", labels) is None
    assert registry.get_sample_value("paternoster_operator_demand_requests", labels) == 2


async def test_replicas_follow_what_runs_and_is_held_and_the_cap_is_held(world: World, site: Site) -> None:
    site.answers[METRICS] = TEXT.replace(b"requests_processing 2", b"requests_processing 4")
    for _ in range(8):
        site.held, site.requests = 12, site.requests + 20
        await world.reconcile()
    assert world.cluster.replicas > 1
    decided = world.reconciler.fleets[KEY].memory.last_decision
    assert decided is not None
    assert decided["LiveCap"].reason.value == "NotReported"
    assert decided["LiveCap"].target == 4
    (scaled,) = [event.message for event in world.cluster.events if event.reason == "ScaledUp"][:1]
    assert "from what runs, as the engines do not report requests" in scaled


async def test_a_restart_is_another_instance(world: World, site: Site) -> None:
    await world.reconcile()
    site.answers[METRICS] = TEXT.replace(b"predicted_total 192", b"predicted_total 3")
    await world.reconcile()
    assert world.cluster.condition("MetricsFresh")["status"] == "True"
    assert [event for event in world.cluster.events if event.type == "Warning"] == [], "counters that begin anew"
    pod = world.engine.pod("a", annotations={ENGINE_TYPE: "OpenAI"})
    pod["status"]["containerStatuses"] = [{"name": "engine", "ready": True, "restartCount": 1}]
    world.cluster.shown_pods = [pod]
    await world.reconcile()
    assert world.cluster.condition("MetricsFresh")["status"] == "True"
    assert world.reconciler.fleets[KEY].observed.samples["a"].instance == "start 1"


@pytest.mark.parametrize(
    ("status", "text", "why"),
    [
        (501, b'{"error":{"message":"Start it with `--metrics`"}}', "Start it with `--metrics`"),
        (200, b"vllm:num_requests_running 1\n", "it must be llama.cpp's"),
        (200, b"#" * (4 * 2**20 + 1), "longer than"),
    ],
)
async def test_a_server_whose_numbers_are_not_known_keeps_its_cap(
    world: World, site: Site, status: int, text: bytes, why: str
) -> None:
    site.answers[METRICS] = status, text
    await world.reconcile()
    await world.reconcile()
    assert why in world.cluster.condition("MetricsFresh")["message"]
    assert world.cluster.statuses[-1]["gatewayCap"]["maxInFlight"] == 4
