"""A namespace is a boundary: no pod in another gets a fleet's requests, keys or ports."""

import httpx
import pytest

from paternoster_contract.http.paths import ADMIN_CONFIG, ADMIN_DRAIN, HEALTH, MODELS
from paternoster_contract.labels import ADMIN_PORT, DRAIN, ENGINE_PORT, engine_labels
from paternoster_e2e.kubectl import Document, condition, until
from paternoster_e2e.reach import ReachPod
from paternoster_e2e.teams import Teams

pytestmark = pytest.mark.timeout(600)
REQUESTS = 12


def deny_all(namespace: str) -> Document:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "deny", "namespace": namespace},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    }


def test_requests_and_ports_of_a_fleet_are_its_own(teams: Teams) -> None:
    kubectl, ours = teams.kubectl, teams.fleet(teams.a)
    kubectl.apply(deny_all(teams.a))
    ours.apply()
    ours.until_ready()

    thief = teams.fleet(teams.b, "thief")
    thief.apply(model={"servedName": ours.name})
    message = thief.until_stalled("ServedNameTaken")
    assert f"{teams.a}/{ours.name}" in message
    assert f"{teams.b}/thief" in message
    assert kubectl.list("deployments", teams.b) == []

    impostor = ReachPod(
        kubectl, teams.a, "impostor", engine_labels(ours.name), {"http": ENGINE_PORT, "admin": ADMIN_PORT}
    )
    abroad = ReachPod(kubectl, teams.b, "abroad")
    for pod in (impostor, abroad):
        pod.apply()
    # Its own policy admits no connection, so no probe needs to pass: it runs.
    for pod in (impostor, abroad):
        until(lambda pod=pod: kubectl.get("pod", pod.name, pod.namespace)["status"]["phase"] == "Running", pod.name, 60)  # type: ignore[misc]
    for _ in range(REQUESTS):
        assert ours.chat().status_code == 200
    assert "POST" not in impostor.logs()
    ready = condition(ours.get(), "Ready")
    assert ready["message"] == "1 of 1 replicas serve"

    (engine,) = (pod for pod in ours.pods() if pod["metadata"]["name"] != impostor.name)
    address = engine["status"]["podIP"]
    for port in (ENGINE_PORT, ADMIN_PORT):
        assert not abroad.reaches(address, port)


def test_an_engine_asks_everybody_for_a_key_and_comes_back_from_a_drain_that_nobody_wants(teams: Teams) -> None:
    fleet = teams.fleet(teams.a)
    fleet.apply()
    fleet.until_ready()
    (pod,) = fleet.pods()
    api, admin = (f"http://{pod['status']['podIP']}:{port}" for port in (ENGINE_PORT, ADMIN_PORT))
    # From the node, as a kubelet: no policy keeps it out.
    assert httpx.get(api + HEALTH).status_code == 200
    assert httpx.get(api + MODELS).status_code == 401
    assert httpx.get(api + ADMIN_CONFIG).status_code == 404
    assert httpx.get(admin + ADMIN_CONFIG).status_code == 401
    own = fleet.read_key_header("admin")
    assert httpx.get(admin + ADMIN_CONFIG, headers=own).json()["draining"] is False
    assert httpx.get(api + MODELS, headers=fleet.read_key_header("gateway")).status_code == 200
    assert httpx.get(admin + ADMIN_CONFIG, headers=fleet.read_key_header("gateway")).status_code == 401

    assert httpx.post(admin + ADMIN_DRAIN, headers=own).status_code == 200
    until(lambda: not httpx.get(admin + ADMIN_CONFIG, headers=own).json()["draining"], "it admits again", 30)
    fleet("annotate", "pod", pod["metadata"]["name"], f"{DRAIN}=true")
    until(lambda: httpx.get(admin + ADMIN_CONFIG, headers=own).json()["draining"], "drained as wanted", 30)
    fleet("annotate", "pod", pod["metadata"]["name"], f"{DRAIN}-")
    fleet.until_ready()
    assert fleet.chat().status_code == 200
