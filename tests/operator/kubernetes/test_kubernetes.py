"""The adapter's requests on the wire, against a server that writes them down."""

import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_contract.routing_copy import FIELD, RoutingCopy
from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.cluster import kubernetes
from paternoster_operator.cluster.kubernetes import EVENT_SECONDS, EVENTS_AT_ONCE, KubernetesCluster
from paternoster_operator.cluster.port import LONGEST_NOTE, ClusterError, Event, ForeignObject, Key, NamespaceEnding
from paternoster_operator.desired.children import RootKeys, build_children
from paternoster_operator.handlers import Indices, name_record

KEY = Key("lifts", "ride")
ROOTS = RootKeys(["admin-root"])
Document = Callable[..., dict[str, Any]]


class Server:
    """Has ``objects`` by path, answers everything else with ``status``, and remembers what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.message = "because"
        self.details: dict[str, Any] = {}
        self.written: dict[str, Any] = {"kind": "Anything"}
        self.objects: dict[str, dict[str, Any]] = {}
        self.text: str | None = None
        """What stands before the API server answers in its place, with ``text_status``."""
        self.text_status = 404
        self.requests: list[tuple[str, str, dict[str, str], str, Any]] = []

    async def handle(self, request: web.Request) -> web.Response:
        text = await request.text()
        kind = request.headers.get("Content-Type", "")
        body = json.loads(text) if text else None
        self.requests.append((request.method, request.path, dict(request.query), kind, body))
        if self.text is not None:
            return web.Response(text=self.text, status=self.text_status)
        if request.method == "GET" and self.status < 400:
            there = self.objects.get(request.path)
            absent = {"kind": "Status", "message": "not found"}
            return web.json_response(there or absent, status=200 if there else 404)
        if self.status >= 400:
            body = {"kind": "Status", "message": self.message, "details": self.details}
            return web.json_response(body, status=self.status)
        return web.json_response(self.written)


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


def owned(kind: str, by: str, template: str = "") -> dict[str, Any]:
    """An object of the fleet that the one with the uid ``by`` controls."""
    labels = {"pod-template-hash": template} if template else {}
    reference = {"kind": "Any", "name": "any", "uid": by, "controller": True}
    return {"metadata": {"name": "ride", "uid": f"uid-{kind}", "labels": labels, "ownerReferences": [reference]}}


@pytest.fixture
async def cluster(server: Server, document: Document) -> AsyncIterator[KubernetesCluster]:
    resources = {tuple(KEY): [document()]}
    made = {kind: {tuple(KEY): [owned(kind, "uid-1")]} for kind in ("Service", "Deployment")}
    replica_sets = {tuple(KEY): [owned("ReplicaSet", "uid-Deployment", "one"), owned("ReplicaSet", "uid-other", "two")]}
    pods = [owned("Pod", "uid-ReplicaSet", "one"), owned("Pod", "uid-ReplicaSet", "two"), owned("Pod", "uid-x", "one")]
    cluster = KubernetesCluster(Indices(resources, made, replica_sets, {tuple(KEY): [*pods, {"metadata": {}}]}))
    await cluster.log_in()
    yield cluster
    await cluster.close()


async def test_reads_come_from_the_cache(cluster: KubernetesCluster, server: Server) -> None:
    assert cluster.list() == [KEY]
    assert cluster.get(KEY)["metadata"]["name"] == "ride"  # type: ignore[index]
    assert cluster.get(Key("lifts", "other")) is None
    assert cluster.get_child(KEY, "Deployment")["metadata"]["uid"] == "uid-Deployment"  # type: ignore[index]
    assert cluster.get_child(KEY, "PodDisruptionBudget") is None
    assert len(cluster.list_pods(KEY)) == 1, "the pods of others are not the fleet's, whatever their labels say"
    assert server.requests == []


async def test_children_are_applied_server_side(cluster: KubernetesCluster, server: Server, document: Document) -> None:
    for child in build_children(parse_resource(document()), 2, ROOTS):
        await cluster.apply(child)
    requests = [(method, path) for method, path, *_ in server.requests]
    secret = "/api/v1/namespaces/lifts/secrets/ride-keys"
    budget = "/apis/policy/v1/namespaces/lifts/poddisruptionbudgets/ride"
    assert requests == [
        ("GET", secret),
        ("PATCH", secret),
        ("PATCH", "/api/v1/namespaces/lifts/services/ride"),
        ("GET", budget),
        ("PATCH", budget),
        ("PATCH", "/apis/apps/v1/namespaces/lifts/deployments/ride"),
    ], "what no watch has shown is looked for first"
    for method, path, query, kind, body in server.requests:
        if method == "PATCH":
            assert query == {"fieldManager": "paternoster", "force": "true"}
            assert kind == "application/apply-patch+yaml"
            assert body["metadata"]["name"].startswith("ride")
            assert body["metadata"].get("uid") == {"services": "uid-Service", "deployments": "uid-Deployment"}.get(
                path.split("/")[-2]
            ), "another object of that name would be refused"


@pytest.mark.parametrize(
    ("owner", "message"),
    [
        ([], "controlled by nothing"),
        ([{"kind": "Deployment", "name": "web", "uid": "x", "controller": True}], "controlled by Deployment web"),
        ([{"kind": "LLMDeployment", "name": "ride", "uid": "x", "controller": True}], "ride of another uid"),
    ],
)
async def test_an_object_of_somebody_else_is_left_alone(
    cluster: KubernetesCluster, server: Server, document: Document, owner: list[Any], message: str
) -> None:
    budget = build_children(parse_resource(document()), 2, ROOTS)[2]
    metadata = {"name": "ride", "namespace": "lifts", "uid": "u", "ownerReferences": owner}
    server.objects["/apis/policy/v1/namespaces/lifts/poddisruptionbudgets/ride"] = {"metadata": metadata}
    with pytest.raises(ForeignObject, match=message) as refused:
        await cluster.apply(budget)
    assert (refused.value.reason, refused.value.retriable) == ("ChildNotOwned", False)
    assert [method for method, *_ in server.requests] == ["GET"]
    metadata["ownerReferences"] = [{"kind": "LLMDeployment", "name": "ride", "uid": "uid-1", "controller": True}]
    await cluster.apply(budget)
    assert server.requests[-1][4]["metadata"]["uid"] == "u"


async def test_secrets_are_read_decoded_and_made_once(cluster: KubernetesCluster, server: Server) -> None:
    path = "/api/v1/namespaces/lifts/secrets/keys"
    assert await cluster.read_secret(Key("lifts", "keys")) is None
    server.objects[path] = {"data": {"key": "b25lCnR3bw=="}}
    assert await cluster.read_secret(Key("lifts", "keys")) == {"key": "one\ntwo"}
    server.objects[path] = {"kind": "Secret"}
    assert await cluster.read_secret(Key("lifts", "keys")) == {}
    server.status = 409
    await cluster.create_secret(Key("lifts", "keys"), {"key": "three"})
    method, path, _, _, body = server.requests[-1]
    assert (method, path, body["data"]) == ("POST", "/api/v1/namespaces/lifts/secrets", {"key": "dGhyZWU="})


async def test_one_field_of_a_secret_is_written_and_no_other(cluster: KubernetesCluster, server: Server) -> None:
    await cluster.write_secret(Key("lifts", "routes"), "table", b"\x00\xff")
    ((method, path, query, kind, body),) = server.requests
    assert (method, path, kind) == ("PATCH", "/api/v1/namespaces/lifts/secrets/routes", "application/apply-patch+yaml")
    assert query["fieldManager"] == "paternoster"
    assert body["data"] == {"table": "AP8="}
    assert body["metadata"] == {"name": "routes", "namespace": "lifts"}
    server.status = 403
    with pytest.raises(ClusterError):
        await cluster.write_secret(Key("lifts", "routes"), "table", b"")


async def test_status_goes_to_its_subresource(cluster: KubernetesCluster, server: Server) -> None:
    await cluster.write_status(KEY, {"replicas": 3})
    ((method, path, query, _, body),) = server.requests
    assert (method, path) == ("PATCH", "/apis/paternoster.dev/v1alpha1/namespaces/lifts/llmdeployments/ride/status")
    assert query["fieldManager"] == "paternoster"
    assert body["status"] == {"replicas": 3}
    assert "spec" not in body, "the spec is the user's alone"


async def test_a_claim_is_written_if_the_object_is_as_it_was_read(cluster: KubernetesCluster, server: Server) -> None:
    read = cluster.get(KEY)
    assert read is not None
    read["metadata"]["resourceVersion"] = "17"
    assert await cluster.amend_status(KEY, {"installation": "system/operator"})
    ((_, path, query, kind, body),) = server.requests
    assert path.endswith("/llmdeployments/ride/status")
    assert (query["fieldManager"], kind) == ("paternoster", "application/apply-patch+yaml")
    assert body["metadata"]["resourceVersion"] == "17"
    assert body["metadata"]["uid"] == "uid-1"
    assert body["status"] == {**read.get("status", {}), "installation": "system/operator"}
    server.status = 409
    assert not await cluster.amend_status(KEY, {"installation": "system/operator"})


async def test_events_name_the_object(cluster: KubernetesCluster, server: Server) -> None:
    await cluster.record_event(KEY, Event("Normal", "ScaledUp", "replicas 1->2: " + "x" * 2000))
    ((method, path, _, _, body),) = server.requests
    assert (method, path) == ("POST", "/apis/events.k8s.io/v1/namespaces/lifts/events")
    assert body["regarding"]["uid"] == "uid-1"
    assert body["metadata"]["generateName"] == "ride-", "the API server takes no other end than a letter, digit or -"
    assert len(body["note"]) == 1024


async def test_a_fleet_has_few_events_at_once_and_warnings_beside_many_others(
    cluster: KubernetesCluster, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A law that goes up and down would fill etcd: each event is an object for an hour."""
    now = [0.0]
    monkeypatch.setattr(kubernetes.time, "monotonic", lambda: now[0])
    for number in range(10 * EVENTS_AT_ONCE):
        await cluster.record_event(KEY, Event("Normal", "ScaledUp", f"replicas {number}"))
    await cluster.record_event(KEY, Event("Warning", "OOMKilled", "out of memory"))

    def list_notes() -> list[str]:
        return [body["note"] for method, *_, body in server.requests if method == "POST"]

    assert list_notes() == [*(f"replicas {number}" for number in range(EVENTS_AT_ONCE)), "out of memory"]
    now[0] += EVENT_SECONDS
    for _ in range(2):
        await cluster.record_event(KEY, Event("Normal", "ScaledUp", "x" * 2000))
    assert len(list_notes()) == EVENTS_AT_ONCE + 2
    assert list_notes()[-1].endswith(f"x ({9 * EVENTS_AT_ONCE} events before this one were left out)")
    assert len(list_notes()[-1]) == LONGEST_NOTE
    now[0] += EVENTS_AT_ONCE * EVENT_SECONDS
    await cluster.record_event(Key("lifts", "gone"), Event("Normal", "ScaledUp", "1->2"))
    assert len(cluster._event_rates) == 1, "what was long ago costs no memory"


async def test_events_about_an_object_are_asked_for_by_its_name(cluster: KubernetesCluster, server: Server) -> None:
    path = "/apis/events.k8s.io/v1/namespaces/lifts/events"
    server.objects[path] = {"items": [{"reason": "FailedMount"}]}
    assert await cluster.list_events("lifts", "Pod", "ride-1") == [{"reason": "FailedMount"}]
    ((method, path_of_request, query, _, _),) = server.requests
    assert (method, path_of_request) == ("GET", path)
    assert query == {"fieldSelector": "regarding.kind=Pod,regarding.name=ride-1", "limit": "100"}


async def test_more_bytes_of_events_than_there_are_of_one_object_are_an_error(
    cluster: KubernetesCluster, server: Server
) -> None:
    path = "/apis/events.k8s.io/v1/namespaces/lifts/events"
    server.objects[path] = {"items": [{"note": "x" * 2**20}]}
    with pytest.raises(ClusterError, match="the answer is longer than 1048576 bytes"):
        await cluster.list_events("lifts", "Pod", "ride-1")


async def test_a_refusal_is_cut(cluster: KubernetesCluster, server: Server, document: Document) -> None:
    server.status, server.message = 403, "x" * 10**6
    with pytest.raises(ClusterError) as refused:
        await cluster.apply(build_children(parse_resource(document()), 1, ROOTS)[0])
    assert len(str(refused.value)) < 3000


@pytest.mark.parametrize(("status", "retriable"), [(422, False), (403, False), (409, True), (429, True), (500, True)])
async def test_refusals_carry_the_servers_words(
    cluster: KubernetesCluster, server: Server, document: Document, status: int, retriable: bool
) -> None:
    server.status = status
    with pytest.raises(ClusterError, match=f"HTTP {status}: because") as refused:
        await cluster.apply(build_children(parse_resource(document()), 1, ROOTS)[0])
    assert refused.value.retriable is retriable


async def test_a_kind_that_admission_does_not_know_yet_may_be_known_soon(
    cluster: KubernetesCluster, server: Server, document: Document
) -> None:
    server.status = 403
    server.message = (
        "services ride is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for "
        'APIVersion paternoster.dev/v1alpha1 Kind LLMDeployment: no matches for kind "LLMDeployment"'
    )
    with pytest.raises(ClusterError, match="HTTP 403") as refused:
        await cluster.apply(build_children(parse_resource(document()), 1, ROOTS)[0])
    assert refused.value.retriable


@pytest.mark.parametrize(
    ("status", "details", "ending"),
    [
        (
            403,
            {"kind": "services", "causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]},
            True,
        ),
        (404, {"kind": "namespaces", "name": "lifts"}, True),
        (403, {"kind": "services", "causes": [{"reason": "FieldValueInvalid"}]}, False),
        (409, {"kind": "namespaces", "name": "lifts"}, False),
    ],
)
async def test_a_namespace_that_ends_is_not_taken_for_a_refusal(
    cluster: KubernetesCluster, server: Server, document: Document, status: int, details: dict[str, Any], ending: bool
) -> None:
    server.status, server.details = status, details
    with pytest.raises(ClusterError) as refused:
        await cluster.apply(build_children(parse_resource(document()), 1, ROOTS)[1])
    assert isinstance(refused.value, NamespaceEnding) is ending
    await cluster.record_event(KEY, Event("Normal", "ScaledUp", "1->2"))


async def test_the_status_of_a_fleet_that_was_deleted_is_not_amended(
    cluster: KubernetesCluster, server: Server
) -> None:
    cluster.get(KEY)["metadata"]["resourceVersion"] = "7"  # type: ignore[index]
    server.status = 404
    assert not await cluster.amend_status(KEY, {"installation": "home/operator"})


async def test_what_is_gone_already_is_no_error(cluster: KubernetesCluster, server: Server) -> None:
    server.status = 404
    await cluster.annotate_pod(KEY, "ride-1", {"a": "1"})
    await cluster.write_status(KEY, {})
    assert [request[0] for request in server.requests] == ["PATCH", "PATCH"]


@pytest.mark.parametrize("body", ["404 page not found", '{"message": "no"}', '["Status"]', ""])
async def test_what_only_a_load_balancer_does_not_find_may_be_there(
    cluster: KubernetesCluster, server: Server, body: str
) -> None:
    """Or a Secret would count as deleted, and every client's key as revoked, for as long as that lasts."""
    server.text = body
    with pytest.raises(ClusterError, match="HTTP 404") as refused:
        await cluster.read_secret(Key("lifts", "keys"))
    assert refused.value.retriable


async def test_an_answer_that_is_no_json_is_a_fault_of_the_cluster(cluster: KubernetesCluster, server: Server) -> None:
    server.text, server.text_status = "<html>", 200
    with pytest.raises(ClusterError, match="GET /api"):
        await cluster.read_secret(Key("lifts", "keys"))


async def test_an_event_that_is_refused_is_no_fault_of_the_fleet(cluster: KubernetesCluster, server: Server) -> None:
    server.status = 403
    await cluster.record_event(KEY, Event("Normal", "ScaledUp", "replicas 1->2"))
    assert [method for method, *_ in server.requests] == ["POST"]


async def test_a_target_is_read_with_the_pods_that_it_made(cluster: KubernetesCluster, server: Server) -> None:
    assert await cluster.read_target(Key("lifts", "chat")) is None
    deployment = {**owned("Deployment", "nobody"), "spec": {"selector": {"matchLabels": {"app": "chat"}}}}
    deployments = "/apis/apps/v1/namespaces/lifts/deployments/chat"
    server.objects = {
        deployments: deployment,
        "/apis/apps/v1/namespaces/lifts/replicasets": {"items": [owned("ReplicaSet", "uid-Deployment", "one")]},
        "/api/v1/namespaces/lifts/pods": {
            "items": [owned("Pod", "uid-ReplicaSet", "one"), owned("Pod", "uid-other", "one")]
        },
    }
    server.requests.clear()
    found = await cluster.read_target(Key("lifts", "chat"))
    assert found is not None
    assert found.deployment == deployment
    assert [pod["metadata"]["uid"] for pod in found.pods] == ["uid-Pod"], "a label alone makes no pod one of its own"
    queries = {path: query for _, path, query, *_ in server.requests if path != deployments}
    assert len(queries) == 2
    assert all(query == {"labelSelector": "app=chat", "resourceVersion": "0"} for query in queries.values())


async def test_a_config_map_is_replaced_only_as_it_was_read(cluster: KubernetesCluster, server: Server) -> None:
    key, root = Key("lifts", "names"), "/api/v1/namespaces/lifts/configmaps"
    assert await cluster.read_config_map(key) is None
    server.objects[f"{root}/names"] = {"metadata": {"resourceVersion": "7"}, "data": {"f": "v"}}
    assert await cluster.read_config_map(key) == ({"f": "v"}, "7")
    server.written = {"metadata": {"resourceVersion": "8"}}
    assert await cluster.write_config_map(key, {"f": "w"}, None) == "8"
    assert await cluster.write_config_map(key, {"f": "w"}, "7") == "8"
    assert [(method, path) for method, path, *_ in server.requests[-2:]] == [("POST", root), ("PUT", f"{root}/names")]
    assert [body["metadata"].get("resourceVersion") for *_, body in server.requests[-2:]] == [None, "7"]
    server.status = 409
    assert await cluster.write_config_map(key, {"f": "w"}, "7") is None


async def test_names_of_an_operator_without_a_record_come_from_its_routes(
    cluster: KubernetesCluster, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    secret = Key("lifts", "routes")
    record = name_record(cluster, Key("lifts", "names"), secret)
    assert record is not None
    assert await record.read_published_routes() == {}
    table = RoutingTable(models={"m": ModelRoute(fleet="uid-1", aliases=["n"]), "by-hand": ModelRoute()})
    packed = RoutingCopy(written_at=0, table=table).pack()
    path = "/api/v1/namespaces/lifts/secrets/routes"
    server.objects[path] = {"data": {FIELD: base64.b64encode(packed).decode()}}
    assert await record.read_published_routes() == table.models
    server.objects[path] = {"data": {FIELD: "aGVsbG8="}}
    assert await record.read_published_routes() == {}
    server.status = 403
    assert await record.read_published_routes() == {}
    assert "routes that were published before" in caplog.text
    server.status = 500
    with pytest.raises(ClusterError):
        await record.read_published_routes()
