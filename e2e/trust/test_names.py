"""Names that children cannot have, objects of another owner, and children that vanish: reported, and repaired."""

import pytest

from paternoster_contract.labels import ENGINE_PORT
from paternoster_e2e.fleet import Fleet
from paternoster_e2e.kubectl import CommandError, condition, until
from paternoster_e2e.outage import SYSTEM
from paternoster_e2e.teams import Teams

pytestmark = pytest.mark.timeout(600)
BACK_SECONDS = 15


def test_a_name_that_no_service_can_have_is_refused_by_the_api_server(teams: Teams) -> None:
    with pytest.raises(CommandError, match=r"metadata\.name must begin with a letter"):
        teams.fleet(teams.a, "7b-chat").apply()


def test_dots_are_mapped_and_the_fleet_serves_by_each_of_its_names(teams: Teams) -> None:
    fleet = teams.fleet(teams.a, "smol-0.1-b")
    fleet.apply(model={"aliases": ["smol-latest", "acme/smol"]})
    fleet.until_ready()
    answers = [fleet.chat(model=name) for name in ("", "smol-latest", "acme/smol")]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert fleet.get()["status"]["servedAliases"] == ["smol-latest", "acme/smol"]
    assert fleet.chat(model="smol").status_code == 404
    assert (
        teams.kubectl.get("deployment", "smol-0-1-b", teams.a)["metadata"]["ownerReferences"][0]["name"] == fleet.name
    )
    for kind in ("services", "poddisruptionbudgets", "networkpolicies"):
        before = teams.kubectl.get(kind, "smol-0-1-b", teams.a)["metadata"]["uid"]
        fleet("delete", kind, "smol-0-1-b")

        def back(kind: str = kind, before: str = before) -> bool:
            found = teams.kubectl.list(kind, teams.a, f"app.kubernetes.io/instance={fleet.name}")
            return [each["metadata"]["uid"] for each in found] not in ([], [before])

        until(back, f"the {kind} are back", BACK_SECONDS)


def test_an_object_of_somebody_else_is_named_and_left_alone(teams: Teams) -> None:
    fleet = teams.fleet(teams.a)
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": fleet.name, "namespace": teams.a},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    teams.kubectl.apply(foreign)
    fleet.apply()
    message = fleet.until_stalled("ChildNotOwned")
    assert f"Service {teams.a}/{fleet.name}" in message
    assert "controlled by nothing" in message
    service = teams.kubectl.get("service", fleet.name, teams.a)
    assert (service["spec"]["selector"], service["spec"]["ports"][0]["port"]) == ({"app": "web"}, 80)
    assert "ownerReferences" not in service["metadata"]
    fleet("delete", "service", fleet.name)
    fleet.until_ready()
    assert fleet.child("service")["spec"]["ports"][0]["port"] == ENGINE_PORT


def test_a_fleet_that_is_ready_is_known_to_the_gateway(teams: Teams) -> None:
    """One that sleeps is ready as soon as it is known, and its first request wakes it."""
    for name in ("one", "two", "three"):
        fleet = teams.fleet(teams.a, name)
        to_zero = {"minReplicas": 0, "maxReplicas": 1, "scaleToZero": {"enabled": True, "coldRequestPolicy": "Reject"}}
        fleet.apply(autoscaling=to_zero)
        fleet("wait", "--for=condition=Ready", f"llmd/{name}", "--timeout=60s")
        assert fleet.chat().status_code == 503, "known, and none is started yet"


def test_neither_a_forged_status_nor_waiting_takes_a_name(teams: Teams) -> None:
    """The older fleet waits for the name, claims in its status to have it, and sees its owner made again."""
    waiting, ours = teams.fleet(teams.b, "waits"), teams.fleet(teams.a, "ours")
    waiting.apply(model={"servedName": "waits"})
    ours.apply(model={"servedName": "contested"})
    ours.until_ready()
    waiting.apply(model={"servedName": "waits", "aliases": ["contested"]})
    until(lambda: explain_missing_name(waiting), "the name is taken")
    forged = '{"status": {"servedModel": "contested", "servedAliases": ["waits"]}}'
    waiting("patch", "llmd", "waits", "--subresource=status", "--type=merge", f"--patch={forged}")
    teams.kubectl("delete", "pods", "--selector=app.kubernetes.io/component=operator", f"--namespace={SYSTEM}")
    teams.kubectl("wait", "--for=condition=Ready", "pods", "--selector=app.kubernetes.io/component=operator",
                  f"--namespace={SYSTEM}", "--timeout=120s")  # fmt: skip
    assert ours.chat(model="contested").status_code == 200
    ours("delete", "llmd", "ours", "--wait=true")
    until(lambda: f"reserved for namespace {teams.a}" in explain_missing_name(waiting), "the name is reserved")
    ours.apply(model={"servedName": "contested"})
    ours.until_ready()
    assert ours.get()["status"]["servedModel"] == "contested"


def explain_missing_name(fleet: Fleet) -> str:
    """Why the fleet lacks a name that it asks for; empty where it has all."""
    stalled = condition(fleet.get(), "Stalled")
    return str(stalled["message"]) if stalled.get("reason") == "ServedNameTaken" else ""
