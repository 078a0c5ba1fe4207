"""That this cluster enforces NetworkPolicies: without it, a test of the project's own policies would prove nothing.

On a cluster of the user's own these fail where its network plugin does not enforce.
"""

import json

import pytest

from paternoster_e2e.kubectl import until
from paternoster_e2e.reach import PORTS, Stage

pytestmark = pytest.mark.timeout(240)

HTTP, ADMIN = PORTS["http"], PORTS["admin"]
FRIEND = {"matchLabels": {"app": "friend"}}


def in_namespace(name: str) -> dict[str, object]:
    return {"matchLabels": {"kubernetes.io/metadata.name": name}}


def test_a_denied_namespace_is_reached_by_nobody(stage: Stage) -> None:
    stage.policy("deny", stage.server.namespace, policyTypes=["Ingress"])
    for client in (stage.friend, stage.stranger):
        stage.refused(client, HTTP, ADMIN)
        stage.refused(client, HTTP, ADMIN, host=stage.service)
    # The other direction is not meant.
    stage.reached(stage.server, HTTP, host=stage.friend.address)


def test_who_is_allowed_reaches_the_named_port_and_no_other(stage: Stage) -> None:
    stage.policy("deny", stage.server.namespace, policyTypes=["Ingress"])
    friends = {"namespaceSelector": in_namespace(stage.friend.namespace), "podSelector": FRIEND}
    rule = {"from": [friends], "ports": [{"port": "http"}]}
    stage.policy("friends", stage.server.namespace, podSelector={"matchLabels": {"app": "server"}}, ingress=[rule])
    stage.reached(stage.friend, HTTP)
    stage.reached(stage.friend, HTTP, host=stage.service)
    stage.refused(stage.friend, ADMIN)
    stage.refused(stage.friend, ADMIN, host=stage.service)
    stage.refused(stage.stranger, HTTP, ADMIN)


def test_both_selectors_of_a_peer_must_match(stage: Stage) -> None:
    elsewhere = {"namespaceSelector": in_namespace(stage.server.namespace), "podSelector": FRIEND}
    here = {"podSelector": FRIEND}
    stage.policy("friends", stage.server.namespace, ingress=[{"from": [elsewhere, here]}])
    stage.refused(stage.friend, HTTP)
    any_pod = {"namespaceSelector": in_namespace(stage.friend.namespace)}
    stage.policy("abroad", stage.server.namespace, ingress=[{"from": [any_pod], "ports": [{"port": ADMIN}]}])
    # Policies add up.
    stage.reached(stage.stranger, ADMIN)
    stage.refused(stage.stranger, HTTP)


def test_a_policy_follows_the_labels_of_pods(stage: Stage) -> None:
    friends = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"pass": "yes"}}}
    stage.policy("friends", stage.server.namespace, ingress=[{"from": [friends]}])
    stage.refused(stage.stranger, HTTP)
    here = f"--namespace={stage.stranger.namespace}"
    stage.kubectl("label", "pod", "stranger", "pass=yes", here)
    stage.reached(stage.stranger, HTTP)
    stage.kubectl("label", "pod", "stranger", "pass-", here)
    stage.refused(stage.stranger, HTTP)


def test_probes_pass_where_everything_is_denied(stage: Stage) -> None:
    stage.policy("deny", stage.server.namespace, policyTypes=["Ingress", "Egress"])
    stage.refused(stage.stranger, HTTP)
    before = stage.server.logs().count("GET / ")
    until(lambda: stage.server.logs().count("GET / ") >= before + 3, "kubelet asks and is answered", 30)
    found = stage.kubectl("get", "pod", "server", f"--namespace={stage.server.namespace}", "--output=json")
    conditions = {entry["type"]: entry["status"] for entry in json.loads(found)["status"]["conditions"]}
    assert conditions["Ready"] == "True"


def test_egress_is_held_to_pods_and_to_the_node(stage: Stage) -> None:
    abroad = stage.friend.namespace
    api_server = "kubernetes.default.svc.cluster.local"
    stage.reached(stage.friend, 443, host=api_server)
    api = stage.kubectl.get("service", "kubernetes")
    stage.policy("deny", abroad, policyTypes=["Egress"])
    stage.refused(stage.friend, HTTP)
    # By its address: names are not to be had any more.
    stage.refused(stage.friend, 443, host=api["spec"]["clusterIP"])
    servers = {"namespaceSelector": in_namespace(stage.server.namespace)}
    rule = {"to": [servers], "ports": [{"port": "http"}]}
    stage.policy("home", abroad, podSelector=FRIEND, policyTypes=["Egress"], egress=[rule])
    stage.reached(stage.friend, HTTP)
    stage.refused(stage.friend, ADMIN)
    stage.refused(stage.stranger, HTTP)


def test_blocks_of_addresses_and_ranges_of_ports(stage: Stage) -> None:
    block = {"cidr": "0.0.0.0/0", "except": [f"{stage.stranger.address}/32"]}
    rule = {"from": [{"ipBlock": block}], "ports": [{"port": HTTP + 1, "endPort": HTTP + 9}]}
    stage.policy("block", stage.server.namespace, ingress=[rule])
    stage.reached(stage.friend, ADMIN)
    stage.refused(stage.friend, HTTP)
    stage.refused(stage.stranger, HTTP, ADMIN)
