"""The adapter's requests on the wire, against a server that writes them down."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from paternoster_operator.api.manifest import parse
from paternoster_operator.cluster.kubernetes import KubernetesCluster
from paternoster_operator.cluster.port import ClusterError, Event, Key
from paternoster_operator.desired.children import build_children
from paternoster_operator.handlers import Indices

KEY = Key("lifts", "ride")
Document = Callable[..., dict[str, Any]]


class Server:
    """Answers everything with ``status`` and remembers it."""

    def __init__(self) -> None:
        self.status = 200
        self.requests: list[tuple[str, str, dict[str, str], str, Any]] = []

    async def handle(self, request: web.Request) -> web.Response:
        text = await request.text()
        kind = request.headers.get("Content-Type", "")
        body = json.loads(text) if text else None
        self.requests.append((request.method, request.path, dict(request.query), kind, body))
        if self.status >= 400:
            return web.json_response({"kind": "Status", "message": "because"}, status=self.status)
        return web.json_response({"kind": "Anything"})


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    monkeypatch.setattr("kubernetes.aio.config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    yield server
    await runner.cleanup()


@pytest.fixture
async def cluster(server: Server, document: Document) -> AsyncIterator[KubernetesCluster]:
    resources = {tuple(KEY): [document()]}
    cluster = KubernetesCluster(Indices(resources, {}, {tuple(KEY): [{"metadata": {"name": "p"}}]}))
    await cluster.open()
    yield cluster
    await cluster.close()


async def test_reads_come_from_the_cache(cluster: KubernetesCluster, server: Server) -> None:
    assert cluster.list() == [KEY]
    assert cluster.get(KEY)["metadata"]["name"] == "ride"  # type: ignore[index]
    assert cluster.get(Key("lifts", "other")) is None
    assert cluster.deployment(KEY) is None
    assert [pod["metadata"]["name"] for pod in cluster.pods(KEY)] == ["p"]
    assert server.requests == []


async def test_children_are_applied_server_side(cluster: KubernetesCluster, server: Server, document: Document) -> None:
    for child in build_children(parse(document()), 2):
        await cluster.apply(child)
    paths = [path for _, path, *_ in server.requests]
    assert paths == [
        "/api/v1/namespaces/lifts/services/ride",
        "/apis/policy/v1/namespaces/lifts/poddisruptionbudgets/ride",
        "/apis/apps/v1/namespaces/lifts/deployments/ride",
    ]
    for method, _, query, kind, body in server.requests:
        assert method == "PATCH"
        assert query == {"fieldManager": "paternoster", "force": "true"}
        assert kind == "application/apply-patch+yaml"
        assert body["metadata"]["name"] == "ride"


async def test_status_goes_to_its_subresource(cluster: KubernetesCluster, server: Server) -> None:
    await cluster.write_status(KEY, {"replicas": 3})
    ((method, path, query, _, body),) = server.requests
    assert (method, path) == ("PATCH", "/apis/paternoster.dev/v1alpha1/namespaces/lifts/llmdeployments/ride/status")
    assert query["fieldManager"] == "paternoster"
    assert body["status"] == {"replicas": 3}
    assert "spec" not in body, "the spec is the user's alone"


async def test_events_name_the_object(cluster: KubernetesCluster, server: Server) -> None:
    await cluster.record_event(KEY, Event("Normal", "ScaledUp", "replicas 1->2: " + "x" * 2000))
    ((method, path, _, _, body),) = server.requests
    assert (method, path) == ("POST", "/apis/events.k8s.io/v1/namespaces/lifts/events")
    assert body["regarding"]["uid"] == "uid-1"
    assert body["metadata"]["generateName"] == "ride-", "the API server takes no other end than a letter, digit or -"
    assert len(body["note"]) == 1024


@pytest.mark.parametrize(("status", "retriable"), [(422, False), (403, False), (409, True), (429, True), (500, True)])
async def test_refusals_carry_the_servers_words(
    cluster: KubernetesCluster, server: Server, document: Document, status: int, retriable: bool
) -> None:
    server.status = status
    with pytest.raises(ClusterError, match=f"HTTP {status}: because") as refused:
        await cluster.apply(build_children(parse(document()), 1)[0])
    assert refused.value.retriable is retriable


async def test_what_is_gone_already_is_no_error(cluster: KubernetesCluster, server: Server) -> None:
    server.status = 404
    await cluster.annotate_pod(KEY, "ride-1", {"a": "1"})
    await cluster.write_status(KEY, {})
    assert [request[0] for request in server.requests] == ["PATCH", "PATCH"]
