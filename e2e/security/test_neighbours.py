"""A member of one namespace, with Kubernetes' ``edit`` and what the chart adds to it, attacks operator and gateways.

The other team's fleet answers meanwhile, and its changes reach the operator and the gateway within a bound, while what
the attack has made is still there and has a condition that names it.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import httpx
import pytest

from paternoster_contract.labels import ENGINE_CONTAINER, ENGINE_PORT, ENGINE_PORT_NAME
from paternoster_contract.routing import ModelRoute
from paternoster_contract.routing_rows import MOST_BYTES, Row
from paternoster_e2e.artifacts.images import version
from paternoster_e2e.fleet import Fleet
from paternoster_e2e.kubectl import CommandError, Document, Kubectl, condition, until
from paternoster_e2e.local_operator import kubeconfig
from paternoster_e2e.release import SYSTEM, restricted_namespace
from paternoster_e2e.teams import Teams
from paternoster_operator.keys.client_keys import MAX_KEYS, read_key_list

pytestmark = pytest.mark.timeout(600)

WITHIN_SECONDS = 120
"""Until a change of the quiet team's has reached status and gateway, on a node whose cores tests and clusters share."""
APPLIED_TOGETHER = 40
"""Fleets: an API server on busy cores takes most of a second for each."""
ASLEEP: Document = {
    "minReplicas": 0,
    "maxReplicas": 1,
    "scaleToZero": {"enabled": True, "coldRequestPolicy": "Reject"},
}


@dataclass
class Quiet:
    """The team that does no harm: one fleet that serves, and one more that sleeps for each check."""

    fleet: Fleet
    teams: Teams
    changes: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    """Statuses, or errors, of the chats that are sent without a pause."""

    def is_steered(self) -> None:
        """A change is observed, and a new fleet is made and known to the gateway; every chat has been answered."""
        self.changes += 1
        self.fleet.apply(admission={"maxHeldRequests": 100 + self.changes})
        late = self.teams.fleet(self.teams.a, f"late-{self.changes}")
        late.apply(autoscaling=ASLEEP)
        until(self.fleet.seen, "the change is observed", WITHIN_SECONDS)
        until(lambda: condition(late.get(), "Ready").get("status") == "True", "the new fleet is made", WITHIN_SECONDS)
        until(lambda: late.chat().status_code == 503, "the gateway knows the new fleet", WITHIN_SECONDS)
        assert not condition(self.fleet.get(), "Stalled")
        assert self.answers.keys() == {"200"}, self.answers

    @contextmanager
    def chatting(self) -> Iterator[None]:
        ended = threading.Event()

        def chat() -> None:
            while not ended.wait(0.5):
                try:
                    self.answers[str(self.fleet.chat().status_code)] += 1
                except httpx.HTTPError as error:
                    self.answers[repr(error)] += 1

        thread = threading.Thread(target=chat)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@dataclass(frozen=True)
class Member:
    """Member of the other team: kubectl by a service account that is bound to ``edit`` in its namespace."""

    kubectl: Kubectl
    teams: Teams

    def secret(self, name: str, key: str) -> None:
        metadata = {"name": name, "namespace": self.teams.b}
        self.kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"key": key}})

    def fleet(self, name: str) -> Fleet:
        return Fleet(self.kubectl, self.teams.b, self.teams.gateway, name)


@pytest.fixture(scope="module")
def quiet(kubectl: Kubectl, gateway: str) -> Iterator[Quiet]:
    with restricted_namespace(kubectl, Teams.a):
        teams = Teams(kubectl, gateway)
        quiet = Quiet(teams.fleet(teams.a), teams)
        quiet.fleet.apply()
        quiet.fleet.until_ready()
        with quiet.chatting():
            yield quiet


@pytest.fixture
def member(kubectl: Kubectl, quiet: Quiet, tmp_path: Any) -> Iterator[Member]:
    teams = quiet.teams
    with restricted_namespace(kubectl, teams.b):
        kubectl("create", "serviceaccount", "member", f"--namespace={teams.b}")
        bound = ["--clusterrole=edit", f"--serviceaccount={teams.b}:member", f"--namespace={teams.b}"]
        kubectl("create", "rolebinding", "member", *bound)
        config = tmp_path / "kubeconfig"
        config.write_text(json.dumps(kubeconfig(kubectl, teams.b, "member")))
        own = Kubectl({**kubectl.environment, "KUBECONFIG": str(config)})
        until(lambda: allowed(own, "create", "llmd", teams.b), "the role covers LLMDeployments", 30)
        yield Member(own, teams)
        assert operator_restarts(kubectl) == 0


def allowed(kubectl: Kubectl, verb: str, what: str, namespace: str, subresource: str = "") -> bool:
    words = [verb, what, f"--namespace={namespace}", f"--subresource={subresource}"]
    try:
        return kubectl("auth", "can-i", *words).strip() == "yes"
    except CommandError:  # "no" is an exit status as well
        return False


def operator_restarts(kubectl: Kubectl) -> int:
    pods = kubectl.list("pods", SYSTEM, "app.kubernetes.io/component=operator")
    return sum(status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"])


def full_key_list(entries: int) -> str:
    """Keys whose tenants and limits are as long as they may be."""
    return json.dumps(
        [
            {
                "name": f"{number:064}",
                "sha256": sha256(f"{number}".encode()).hexdigest(),
                "weight": 1 / 3,
                "maxQueued": 2**31 - 1,
                "maxRunning": 2**31 - 1,
                "tokensPerSecond": 1e9 / 3,
                "tokenBurst": 1e12 / 3,
                "expires": "2999-01-01T00:00:00.000001Z",
            }
            for number in range(entries)
        ],
        separators=(",", ":"),
    )


def test_a_member_may_do_in_its_own_namespace_what_the_attacks_need_and_nothing_else(member: Member) -> None:
    own, other = member.teams.b, member.teams.a
    needed = [("create", "llmd"), ("create", "secrets"), ("create", "pods"), ("list", "replicasets")]
    assert all(allowed(member.kubectl, verb, what, own) for verb, what in needed)
    assert allowed(member.kubectl, "patch", "llmd", own, "scale")
    elsewhere = [(verb, what, place, "") for verb, what in needed for place in (other, SYSTEM)]
    # Status is the operator's alone: who writes it could forge what the autoscaler has learnt.
    elsewhere += [("patch", "llmd", own, "status"), ("get", "secrets", SYSTEM, "")]
    assert [request for request in elsewhere if allowed(member.kubectl, *request)] == []


def test_merge_keys_in_a_secret(quiet: Quiet, member: Member) -> None:
    """A few hundred characters that a YAML loader with aliases and merge keys turns into billions of entries."""
    lines = ["- &a0 {name: x}"]
    lines += [f"- &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 14)]
    member.secret("bomb", "\n".join(lines))
    fleet = member.fleet("bomb")
    fleet.apply(autoscaling=ASLEEP, security={"apiKeys": [{"name": "bomb"}]})
    assert "anchor" in fleet.until_stalled("ConfigurationInvalid", ready="True")
    quiet.is_steered()
    assert fleet.chat("any").status_code == 401


def test_a_pod_made_by_hand_with_thousands_of_digits(quiet: Quiet, member: Member) -> None:
    """Its fleet makes no pod itself, for want of a service account, so that this one stays."""
    fleet = member.fleet("by-hand")
    fleet.apply(serviceAccountName="absent")
    fleet.until_stalled("ConfigurationMissing")
    [replica_set] = member.kubectl.list("replicasets", fleet.namespace)
    member.kubectl("create", "--filename=-", document=pod_by_hand(replica_set))
    member.kubectl("wait", "--for=condition=Ready", "pod/by-hand", f"--namespace={fleet.namespace}", "--timeout=60s")
    until(
        lambda: fleet.get()["status"].get("readyReplicas") == 1,
        "the operator takes the pod for a replica",
        WITHIN_SECONDS,
    )
    quiet.is_steered()
    assert [pod["metadata"]["name"] for pod in fleet.pods()] == ["by-hand"]


def pod_by_hand(replica_set: Document) -> Document:
    """A pod that the ReplicaSet takes for its own: it sleeps, and has an engine's flag with 5,000 digits."""
    container = {
        "name": ENGINE_CONTAINER,
        "image": f"paternoster-gateway:{version()}",
        "command": ["python3", "-c", "import time; time.sleep(600)"],
        "args": ["--max-num-seqs", "9" * 5000],
        "ports": [{"name": ENGINE_PORT_NAME, "containerPort": ENGINE_PORT}],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "containers": [container],
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 0,
    }
    metadata = {
        "name": "by-hand",
        "namespace": replica_set["metadata"]["namespace"],
        "labels": replica_set["spec"]["template"]["metadata"]["labels"],
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": replica_set["metadata"]["name"],
                "uid": replica_set["metadata"]["uid"],
                "controller": True,
            }
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.timeout(1200)
def test_more_keys_than_the_routing_table_has_room_for(quiet: Quiet, member: Member) -> None:
    keys = full_key_list(MAX_KEYS)
    member.secret("many", keys)
    identities = dict(read_key_list(keys).identities)
    assert len(identities) == MAX_KEYS
    row = Row(name="many-000", route=ModelRoute(key_digests=list(identities), identities=identities))
    fleets = [member.fleet(f"many-{number:03}") for number in range(MOST_BYTES // len(row.encode()) + 8)]
    documents = [fleet.document(autoscaling=ASLEEP, security={"apiKeys": [{"name": "many"}]}) for fleet in fleets]
    for first in range(0, len(documents), APPLIED_TOGETHER):
        items = documents[first : first + APPLIED_TOGETHER]
        member.kubectl.apply({"apiVersion": "v1", "kind": "List", "items": items})
    quiet.is_steered()

    def full() -> list[Document]:
        made = member.kubectl.list("llmd", fleets[0].namespace)
        return [each for each in made if condition(each, "Stalled").get("reason") == "RoutingTableFull"]

    refused = until(full, "fleets without a route have a condition", 240)
    assert all("share of the routing table" in condition(each, "Stalled")["message"] for each in refused)
    quiet.is_steered()
    until(lambda: Counter(fleet.chat("any").status_code for fleet in fleets).keys() == {401, 404}, "some are known", 60)
