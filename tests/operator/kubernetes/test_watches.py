"""Whatever an API server answers, for however long: the operator stays, answers probes, and works afterwards."""

import inspect
from pathlib import Path

import pytest
from kopf._cogs.clients import scanning
from kopf._core.reactor import observation, queueing
from tests.operator.kubernetes.fake_api_server import FakeApiServer, Fault
from tests.operator.kubernetes.running_operator import NAMESPACES, SCAN, WATCH, events_of, operator

from paternoster_contract import labels
from paternoster_operator.cluster import kopf_watches
from paternoster_operator.cluster.port import Key
from paternoster_operator.desired.network_policy import Peers

ATTEMPTS = 12
"""More than kopf makes by itself."""
ANSWERS = (500, 503, 429, 403, 404, 401, "reset", "silence")


@pytest.mark.parametrize(("plural", "namespace"), [("", ""), ("pods", ""), (labels.PLURAL, ""), ("", "slopes")])
async def test_no_answer_ends_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plural: str, namespace: str
) -> None:
    server = FakeApiServer()
    async with operator(server, tmp_path, monkeypatch) as running:
        for each in NAMESPACES:
            await running.until(lambda name=each: running.status(name))  # type: ignore[misc]
        _, table = await running.get("/routes")
        assert table.count('"ready":true') == len(NAMESPACES)
        for answer in ANSWERS:
            server.fail(Fault(answer, plural, namespace))
            await running.until(lambda: server.most_refused() >= (2 if server.fault.answer == "silence" else ATTEMPTS))  # type: ignore[union-attr]
            assert [(await running.get(path))[0] for path in ("/healthz", "/readyz")] == [200, 200], answer
            assert (await running.get("/routes"))[1] == table, f"{answer} moves no stream"
            if namespace:
                await running.edit("lifts")
            server.fail(None)
            for each in NAMESPACES:
                await running.edit(each)
                await running.until(lambda name=each: running.stalled(name) is None)  # type: ignore[misc]
            for kind in ("Pod", labels.KIND):
                assert await running.works(kind, "slopes"), answer
            assert (await running.get("/routes"))[1] == table


@pytest.mark.parametrize("answer", ANSWERS)
async def test_the_operator_ends_by_its_own_decision_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int | str
) -> None:
    """Stopped while nothing is answered, also before it has read anything."""
    server = FakeApiServer()
    server.fault = Fault(answer)
    async with operator(server, tmp_path, monkeypatch) as running:
        await running.until(lambda: server.most_refused() >= 2 and running.memo.get("http") is not None)
        assert [(await running.get(path))[0] for path in ("/healthz", "/readyz", "/routes")] == [200, 503, 503]


@pytest.mark.parametrize("answer", [403, 404])
async def test_a_namespace_that_is_refused_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    """An operator that starts after somebody deleted a namespace, and the Role in it."""
    server = FakeApiServer()
    server.fault = Fault(answer, namespace="slopes")
    async with operator(server, tmp_path, monkeypatch) as running:
        await running.until(lambda: running.status("lifts"))
        assert await running.works("Pod", "lifts")
        assert await running.works("Pod", "slopes") is False
        assert (await running.get("/readyz"))[0] == 200
        server.fail(None)
        await running.until(lambda: running.status("slopes"))
        await running.until(lambda: running.stalled("slopes") is None)


async def test_the_fleets_that_a_failing_watch_concerns_report_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeApiServer()
    async with operator(server, tmp_path, monkeypatch) as running:
        await running.until(lambda: running.status("slopes"))
        server.fail(Fault(403, "pods", "slopes"))
        await running.until(lambda: running.stalled("slopes") == "WatchFailed")
        conditions = {each["type"]: each for each in running.status("slopes")["conditions"]}
        assert "the operator cannot watch Pod in slopes: HTTP 403: as told" in conditions["Stalled"]["message"]
        assert conditions["Ready"]["status"] == "True", "its replicas go on serving"
        assert await running.works("Pod", "slopes") is False
        assert await running.works("Deployment", "slopes")
        assert running.stalled("lifts") != "WatchFailed"
        server.fail(None)
        await running.until(lambda: running.stalled("slopes") is None)


async def test_an_operator_without_policies_needs_no_right_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no watch of them, and records once that one of before may be left, as it can neither read nor delete."""
    server = FakeApiServer()
    server.fault = Fault(403, "networkpolicies")
    async with operator(server, tmp_path, monkeypatch) as running:
        await running.until(lambda: events_of(server, "ChildLeft"))
        await running.edit("lifts")
        assert running.stalled("lifts") is None
        assert {path.rpartition("/")[2] for path in server.refused} == {"ride"}, "none is listed or watched"
        assert await running.works("NetworkPolicy", "lifts") is None
        (event,) = [each for each in events_of(server, "ChildLeft") if each["regarding"]["namespace"] == "lifts"]
        assert "NetworkPolicy ride may be left" in event["note"]


async def test_policies_that_are_off_are_removed_where_the_fleet_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeApiServer()
    owner = {"apiVersion": "v1", "kind": "Any", "name": "ride", "controller": True}
    for namespace, uid in zip(NAMESPACES, (f"uid-{labels.PLURAL}-lifts-ride", "of-another"), strict=True):
        metadata = {"name": "ride", "namespace": namespace, "ownerReferences": [{**owner, "uid": uid}]}
        await server.put("networkpolicies", {"metadata": metadata})
    async with operator(server, tmp_path, monkeypatch) as running:
        for namespace in NAMESPACES:
            await running.edit(namespace)
        left = {namespace for plural, namespace, _ in server.objects if plural == "networkpolicies"}
        assert left == {"slopes"}, "what another made stays"
        assert [each["regarding"]["namespace"] for each in events_of(server, "ChildRemoved")] == ["lifts"]


async def test_policies_that_are_on_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeApiServer()
    async with operator(server, tmp_path, monkeypatch, Peers("lifts", {"app": "operator"})) as running:
        await running.until(lambda: running.status("lifts"))
        await running.until(lambda: running.memo.cluster.get_child(Key("lifts", "ride"), "NetworkPolicy"))
        await running.edit("lifts")
        await server.remove("networkpolicies", "lifts", "ride")
        await running.until(lambda: ("networkpolicies", "lifts", "ride") in server.objects)
        assert await running.works("NetworkPolicy", "lifts")
        assert not events_of(server, "ChildRemoved")


async def test_what_was_deleted_while_nothing_was_seen_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeApiServer()
    async with operator(server, tmp_path, monkeypatch) as running:
        await running.until(lambda: running.status("slopes"))
        await server.remove(labels.PLURAL, "slopes", "ride", hidden=True)
        await server.remove("pods", "lifts", "ride", hidden=True)
        server.expired = True
        server.break_watches(Fault("reset"))
        await running.until(lambda: running.memo.cluster.list() == [Key("lifts", "ride")])
        await running.until(lambda: not running.memo.cluster.list_pods(Key("lifts", "ride")))
        server.expired = False
        await running.edit("lifts")


async def test_a_watch_that_a_network_forgot_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_watches, "SILENCE_SECONDS", 0.3)
    server = FakeApiServer()
    async with operator(server, tmp_path, monkeypatch) as running:
        await running.until(lambda: running.status("lifts"))
        server.lose_watches()
        await running.edit("lifts")
        assert await running.works(labels.KIND, "lifts")


def test_kopf_asks_for_events_and_kinds_as_this_release_does() -> None:
    """Another kopf may call these two otherwise, or not at all: then its watches would end the process again."""
    events = inspect.signature(WATCH).parameters
    kinds = inspect.signature(SCAN).parameters
    assert set(events) == {"settings", "resource", "namespace", "operator_paused", "_iterations"}
    assert set(kinds) == {"settings", "logger", "groups"}
    assert "watching.infinite_watch(" in inspect.getsource(queueing.watcher)
    assert set(inspect.signature(scanning._read_version).parameters) == {
        "url", "group", "version", "preferred", "settings", "logger",
    }  # fmt: skip
    assert "scanning.scan_resources(" in inspect.getsource(observation.resource_observer)
