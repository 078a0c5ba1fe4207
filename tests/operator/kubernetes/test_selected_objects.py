"""The API server sends the operator what carries the labels of fleets' children, and no other object."""

from pathlib import Path
from typing import Any

import pytest
from tests.operator.kubernetes.fake_api_server import KINDS, SERVED, FakeApiServer, Fault
from tests.operator.kubernetes.running_operator import NAMESPACES, events_of, operator

from paternoster_contract import labels
from paternoster_operator.cluster import kopf_watches
from paternoster_operator.cluster.port import Key
from paternoster_operator.desired.network_policy import Peers

PEERS = Peers("lifts", {"app": "operator"})
CHILDREN = ("deployments", "services", "poddisruptionbudgets", "networkpolicies")
SELECTED = sorted(plural for _, _, plural in SERVED.values() if plural != labels.PLURAL)
FOREIGN_LABELS: dict[str, dict[str, str]] = {
    "of-nobody": {},
    "of-helm": {labels.MANAGED_BY: "Helm", labels.INSTANCE: "ride", labels.COMPONENT: labels.ENGINE_COMPONENT},
    "of-the-gateway": {labels.MANAGED_BY: labels.MANAGER, labels.INSTANCE: "ride", labels.COMPONENT: "gateway"},
    "of-no-fleet": {labels.MANAGED_BY: labels.MANAGER, labels.COMPONENT: labels.ENGINE_COMPONENT},
}


async def plant_foreign(server: FakeApiServer, **fields: Any) -> None:
    for plural in SELECTED:
        for name, of in FOREIGN_LABELS.items():
            for namespace in (*NAMESPACES, "elsewhere"):
                await server.put(plural, {"metadata": {"name": name, "namespace": namespace, "labels": of}, **fields})


async def test_no_foreign_object_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeApiServer()
    await plant_foreign(server)
    async with operator(server, tmp_path, monkeypatch, PEERS) as running:
        await running.until(lambda: all(running.status(namespace) for namespace in NAMESPACES))
        await plant_foreign(server, status={"phase": "Running"})
        server.break_watches(Fault("reset"))
        server.expired = True  # every kind is listed anew
        await running.until(lambda: len(server.pages) >= 3 * len(SERVED) * len(NAMESPACES))
        server.expired = False
        await running.edit("lifts")
    assert {name for _, _, name in server.sent} == {"ride"}
    assert {plural for plural, _, _ in server.sent} == {*SELECTED, labels.PLURAL}, "each kind is watched"


async def test_a_namespaced_operator_reads_its_namespaces_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeApiServer()
    async with operator(server, tmp_path, monkeypatch, PEERS) as running:
        await running.until(lambda: all(running.status(namespace) for namespace in NAMESPACES))
        paths = {path for path, _ in (*server.pages, *server.watched)}
    assert paths == {
        f"/{root}/{version}/namespaces/{namespace}/{plural}"
        for group, version, plural in SERVED.values()
        for namespace in NAMESPACES
        for root in [f"apis/{group}" if group else "api"]
    }


async def test_what_is_sent_is_counted_by_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeApiServer()
    async with operator(server, tmp_path, monkeypatch) as running:
        await running.until(lambda: all(running.status(namespace) for namespace in NAMESPACES))

        def sample(name: str, **of: str) -> float:
            found = running.memo.operator.metrics.registry.get_sample_value(f"paternoster_operator_{name}_total", of)
            return found or 0.0

        assert sample("watch_objects", kind="Pod", event="LISTED") == len(NAMESPACES)
        assert sample("watch_objects_dropped", kind="Pod") == 0
        listed = sample("watch_bytes", kind="Pod", request="list")
        assert listed > len(NAMESPACES) * 100
        pod = server.objects["pods", "lifts", "ride"]
        await server.put("pods", {"metadata": {**pod["metadata"], "annotations": {"a": "x" * 1000}}})
        await running.until(lambda: sample("watch_objects", kind="Pod", event="MODIFIED") == 1)
        assert sample("watch_bytes", kind="Pod", request="watch") > 1000
        assert sample("watch_bytes", kind="Pod", request="list") == listed
        server.expired = True
        server.break_watches(Fault("reset", "pods"))
        await running.until(lambda: sample("watch_objects_dropped", kind="Pod") >= len(NAMESPACES))
        server.expired = False
        await running.edit("lifts")
        assert sample("writes", kind="Deployment", reason="First") == len(NAMESPACES)
        assert sample("writes", kind="LLMDeployment/status", reason="Conditions") >= len(NAMESPACES)
        assert sample("api_requests", method="patch", resource="deployments", code="200") >= len(NAMESPACES)


async def test_a_long_list_comes_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_watches, "PAGE_OBJECTS", 2)
    server = FakeApiServer()
    ours = labels.engine_labels("ride")
    for number in range(5):
        await server.put("pods", {"metadata": {"name": f"ride-{number}", "namespace": "lifts", "labels": ours}})
    async with operator(server, tmp_path, monkeypatch) as running:
        await running.until(lambda: all(running.status(namespace) for namespace in NAMESPACES))
        assert [length for path, length in server.pages if path.endswith("/lifts/pods")] == [2, 2, 2]
        assert {name for plural, namespace, name in server.sent if (plural, namespace) == ("pods", "lifts")} == {
            "ride", *(f"ride-{number}" for number in range(5)),
        }  # fmt: skip


@pytest.mark.parametrize("plural", CHILDREN)
async def test_a_child_gets_back_a_label_that_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plural: str
) -> None:
    server = FakeApiServer()
    ride, kind = Key("lifts", "ride"), KINDS[plural]

    def is_labelled() -> bool:
        found = server.objects[plural, *ride]["metadata"]["labels"]
        return all(found.get(name) == value for name, value in labels.engine_labels("ride").items())

    async with operator(server, tmp_path, monkeypatch, PEERS) as running:
        await running.until(lambda: all(running.status(namespace) for namespace in NAMESPACES))
        await running.until(lambda: running.memo.cluster.get_child(ride, kind))
        for label in (labels.MANAGED_BY, labels.COMPONENT, labels.INSTANCE):
            await running.edit("lifts")  # by now the operator has seen the child
            metadata = server.objects[plural, *ride]["metadata"]
            left = {name: value for name, value in metadata["labels"].items() if name != label}
            await server.put(plural, {"metadata": {**metadata, "labels": left}})
            await running.until(is_labelled)
            await running.until(lambda: running.memo.cluster.get_child(ride, kind))
        assert running.stalled("lifts") is None
        assert not events_of(server, "ChildRemoved")
