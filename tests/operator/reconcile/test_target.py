"""A Deployment that the operator did not make: it is observed and advised, and nothing is changed."""

import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from tests.operator.engines.test_vllm_stats import METRICS
from tests.operator.reconcile.world import KEY, World

from paternoster_operator.cluster.port import ClusterError, Key, TargetObjects

Document = Callable[..., dict[str, Any]]
TARGET = Key(KEY.namespace, "chat")


class ForeignVllm:
    """A vLLM of somebody else: recorded numbers, some of them set by a test, and what it was asked."""

    def __init__(self) -> None:
        self.text = METRICS
        self.requests: list[tuple[str, str, str | None]] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append((request.method, request.path, request.headers.get("Authorization")))
        if request.path == "/version":
            return web.json_response({"version": "0.32.0"})
        return web.Response(body=self.text, status=200 if request.path == "/metrics" else 404)

    def set(self, name: str, value: float) -> None:
        """Set every sample of that name and labels."""
        self.text, found = re.subn(rb"(?m)^(%s) .*$" % re.escape(name.encode()), rb"\g<1> %f" % value, self.text)
        assert found == 1

    def objects(self, replicas: int, *flags: str) -> TargetObjects:
        """Its Deployment of ``replicas``, and one pod, whose second container is the engine."""
        counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), replicas)
        deployment = {
            "metadata": {"name": "chat", "generation": 1},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "chat"}}},
            "status": {"observedGeneration": 1, **counts},
        }
        engine = {"name": "vllm", "args": ["serve", *flags], "ports": [{"containerPort": self.port}]}
        pod = {
            "metadata": {"name": "chat-1", "annotations": {"paternoster.dev/drain": "true"}},
            "spec": {"containers": [{"name": "proxy"}, engine]},
            "status": {
                "phase": "Running",
                "podIP": "127.0.0.1",
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        return TargetObjects(deployment, [pod])


@pytest.fixture
async def vllm() -> AsyncIterator[ForeignVllm]:
    vllm = ForeignVllm()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", vllm.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    vllm.port = runner.addresses[0][1]
    yield vllm
    await runner.cleanup()


@pytest.fixture
def observing(world: World, vllm: ForeignVllm, document: Document) -> World:
    world.cluster.resource = document(
        targetRef={"name": "chat", "port": vllm.port},
        model={"source": "hf://org/name"},
        engine={"maxNumSeqs": 16, "runtime": {"type": "VLLM"}},
        autoscaling={"maxReplicas": 8, "mode": "Advisory"},
        concurrency={"objective": "PreemptionRate"},
    )
    world.cluster.targets[TARGET] = vllm.objects(3)
    return world


async def test_it_is_read_and_nothing_is_written_but_status_and_events(observing: World, vllm: ForeignVllm) -> None:
    await observing.reconcile()
    await observing.reconcile()
    cluster = observing.cluster
    assert (cluster.applies, cluster.annotations, cluster.secrets) == ([], {}, {})
    assert {(method, key) for method, _, key in vllm.requests} == {("GET", None)}
    status = cluster.statuses[-1]
    assert status["engine"] == {"type": "VLLM", "version": "0.32.0", "actuator": "None", "capabilities": []}
    assert (status["readyReplicas"], status["desiredReplicas"]) == (1, 3)
    assert (status["endpoint"], status["servedModel"], status["selector"]) == ("", "", "")
    assert status["concurrency"] == {"capacity": 16, "target": 16, "currentMin": 16, "currentMax": 16}
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.condition("MetricsFresh")["status"] == "True"
    assert cluster.condition("ScalingActive")["reason"] == "Advisory"


async def test_what_it_would_do_is_advised(observing: World, vllm: ForeignVllm) -> None:
    await observing.reconcile()
    labels = '{engine="0",model_name="model"}'
    vllm.set(f"vllm:num_requests_running{labels}", 16)
    vllm.set(f"vllm:num_requests_waiting{labels}", 90)
    vllm.set(f"vllm:num_preemptions_total{labels}", 29)
    vllm.set('vllm:request_success_total{engine="0",finished_reason="length",model_name="model"}', 84)
    await observing.reconcile(after=30)
    decisions = {each["loop"]: each for each in reversed(observing.cluster.statuses[-1]["decisions"])}
    cap, replicas = decisions["LiveCap"], decisions["Replicas"]
    assert not cap["applied"]
    assert "12 of 40 requests preempted with 16 sequences" in cap["message"]
    assert cap["inputs"]["recomputedTokens"] == "not reported"
    assert not replicas["applied"]
    assert "replicas 3->" in replicas["message"]
    assert observing.cluster.statuses[-1]["load"]["waitingRequests"] == 90
    assert observing.cluster.applies == []


async def test_replicas_are_those_of_the_deployment(observing: World, vllm: ForeignVllm) -> None:
    for replicas in (3, 5, 0, 2):
        observing.cluster.targets[TARGET] = vllm.objects(replicas)
        await observing.reconcile()
        assert observing.cluster.statuses[-1]["desiredReplicas"] == replicas


async def test_a_capacity_that_the_manifest_does_not_have_is_named(observing: World, vllm: ForeignVllm) -> None:
    observing.cluster.targets[TARGET] = vllm.objects(3, "--max-num-seqs=64")
    await observing.reconcile()
    assert "capacity is 16: must be 64, as its pod says" in observing.cluster.condition("MetricsFresh")["message"]


async def test_a_deployment_that_is_not_there_is_named(observing: World, vllm: ForeignVllm) -> None:
    del observing.cluster.targets[TARGET]
    await observing.reconcile()
    stalled = observing.cluster.condition("Stalled")
    assert stalled["reason"] == "TargetNotFound"
    assert "spec.targetRef names Deployment chat, which is not there" in stalled["message"]
    observing.cluster.targets[TARGET] = vllm.objects(3)
    await observing.reconcile()
    assert observing.cluster.condition("Stalled") == {}


async def test_a_fleet_with_pods_of_its_own_keeps_them_and_its_name(observing: World) -> None:
    observing.cluster.children["Deployment"] = {"metadata": {"name": "ride", "generation": 1}, "spec": {"replicas": 1}}
    observing.cluster.shown_pods = [observing.engine.pod("own")]
    await observing.reconcile()
    assert observing.cluster.condition("Stalled")["reason"] == "OwnPodsRun"
    assert observing.cluster.applies == []
    status = observing.cluster.statuses[-1]
    assert (status["servedModel"], status["readyReplicas"]) == ("ride", 1)
    assert [names for names, _ in await observing.reconciler._directory.list_served()] == [("ride",)]


async def test_it_has_no_name_and_no_route(observing: World) -> None:
    await observing.reconcile()
    directory = observing.reconciler._directory
    assert await directory.list_served() == []
    resource = observing.reconciler.fleets[KEY].resource
    assert resource is not None
    assert await directory.claim_names(resource) == ((), None)


async def test_a_cluster_that_does_not_answer_is_asked_again(observing: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_: Key) -> TargetObjects | None:
        raise ClusterError("GET: HTTP 503")

    with monkeypatch.context() as patch:
        patch.setattr(observing.cluster, "read_target", refuse)
        with pytest.raises(ClusterError):
            await observing.reconcile()
        assert observing.cluster.condition("Reconciling")["reason"] == "ClusterUnavailable"
    await observing.reconcile()
    assert observing.cluster.condition("Ready")["status"] == "True"
