"""``operator.shards``: a Deployment and a Service for each shard, and nothing of them with one."""

import re
from pathlib import Path
from typing import Any

import pytest

CHART = Path(__file__).resolve().parents[2] / "charts/paternoster"

LABEL = "paternoster.dev/shard"


def find(documents: list[dict[str, Any]], kind: str, word: str) -> dict[str, dict[str, Any]]:
    return {d["metadata"]["name"]: d for d in documents if d["kind"] == kind and word in d["metadata"]["name"]}


def test_a_shard_has_a_deployment_and_a_service_of_its_own(helm: Any) -> None:
    documents = helm.render({"operator": {"shards": 3}})
    deployments = find(documents, "Deployment", "-shard-")
    assert sorted(deployments) == [f"fleet-paternoster-shard-{number}" for number in range(3)]
    assert "fleet-paternoster-operator" not in find(documents, "Deployment", "operator")
    services = find(documents, "Service", "-shard-")
    assert services.keys() == deployments.keys()
    for number, (name, deployment) in enumerate(sorted(deployments.items())):
        spec = deployment["spec"]
        selector, pod = spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]
        assert selector[LABEL] == pod[LABEL] == str(number)
        assert services[name]["spec"]["selector"] == selector
        assert selector.items() <= pod.items()
        args = spec["template"]["spec"]["containers"][0]["args"]
        assert f"--shard={number}/3" in args
        assert "--lease-name=fleet-paternoster-operator" in args
        (url,) = [each.removeprefix("--shard-url=") for each in args if each.startswith("--shard-url=")]
        namespace = deployment["metadata"]["namespace"]
        assert {url.replace("{shard}", str(n)) for n in range(3)} == {
            f"http://{service}.{namespace}.svc:8080" for service in services
        }
    of_all = find(documents, "Service", "operator")["fleet-paternoster-operator"]["spec"]["selector"]
    assert all(
        of_all.items() <= each["spec"]["template"]["metadata"]["labels"].items() for each in deployments.values()
    )
    policy = find(documents, "NetworkPolicy", "operator")["fleet-paternoster-operator"]["spec"]
    own = {"podSelector": {"matchLabels": of_all}}
    assert any(own in rule.get("from", ()) for rule in policy["ingress"])
    assert any(own in rule.get("to", ()) for rule in policy["egress"])
    (role,) = find(documents, "ClusterRole", "-operator").values()
    verbs = {resource: rule["verbs"] for rule in role["rules"] for resource in rule["resources"]}
    assert "patch" in verbs["llmdeployments"]
    assert "patch" in verbs["replicasets"]


@pytest.mark.parametrize("shards", [1, 3])
def test_notes_name_what_the_shards_leave(helm: Any, shards: int) -> None:
    command = ["install", "fleet", str(CHART), "--namespace", "lifts", "--dry-run=client"]
    done = helm.run(command, {"operator": {"shards": shards}})
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert "Lease fleet-paternoster-operator," in notes
    assert ("fleet-paternoster-operator-shards" in notes) == (shards > 1)
    assert ("fleet-paternoster-operator-shard-" in notes) == (shards > 1)


def test_series_of_an_operator_have_its_shard(helm: Any) -> None:
    documents = helm.render({"operator": {"shards": 3}, "monitoring": {"podMonitor": {"enabled": True}}})
    (endpoint,) = find(documents, "PodMonitor", "-operator").popitem()[1]["spec"]["podMetricsEndpoints"]
    source = "__meta_kubernetes_pod_label_" + re.sub("[^a-z]", "_", LABEL)
    assert {"sourceLabels": [source], "targetLabel": "shard"} in endpoint["relabelings"]


def test_one_shard_is_as_without_the_value(helm: Any) -> None:
    text = helm.text({"operator": {"shards": 1}})
    assert text == helm.text()
    assert LABEL not in text
    assert "--shard" not in text


@pytest.mark.parametrize("shards", [0, 17, "3"])
def test_a_number_of_shards_that_cannot_be_is_refused(helm: Any, shards: Any) -> None:
    assert "shards" in helm.refusal({"operator": {"shards": shards}})
