"""What people meet at the command line: names, columns and explanations."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paternoster_e2e.kubectl import CommandError, Document, Kubectl
from paternoster_e2e.objects import merge
from paternoster_operator.api.stored import REMOVED_FIELDS, RemovedField

Manifest = Callable[..., Document]
PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))

HEADER = "NAME READY REASON REPLICAS DESIRED SEQS TOK/S AGE"
WIDE_HEADER = f"{HEADER} MODEL QUEUE PREEMPT/1K KV% COST/1M MODE URL MESSAGE"
STATUS = {
    "readyReplicas": 2,
    "desiredReplicas": 3,
    "servedModel": "smollm2",
    "endpoint": "http://gateway",
    "concurrency": {"target": 24},
    "load": {
        "generationTokensPerSecond": 1900,
        "waitingRequests": 7,
        "preemptionsPerThousand": 12,
        "kvCachePercent": 81,
    },
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "AllReplicasReady",
            "message": "served",
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        }
    ],
}


def test_columns_show_the_status(kubectl: Kubectl, manifest: Manifest, namespace: str) -> None:
    kubectl("create", "--filename=-", document=manifest("shown", autoscaling={"maxReplicas": 3}))
    merge(kubectl, "llmd", namespace, "shown", {"status": STATUS}, "--subresource=status")
    header, row = table(kubectl, "llmd", "shown", namespace)
    assert header == HEADER.split()
    assert row[:-1] == ["shown", "True", "AllReplicasReady", "2", "3", "24", "1900"]
    header, row = table(kubectl, "llmd", "shown", namespace, "--output=wide")
    assert header == WIDE_HEADER.split()
    assert row[8:] == ["smollm2", "7", "12", "81", "Auto", "http://gateway", "served"]


@pytest.mark.parametrize("flags", [(), ("--output=wide",), ("--all-namespaces",)])
def test_paternoster_get_prints_what_kubectl_does(
    kubectl: Kubectl, manifest: Manifest, namespace: str, flags: tuple[str, ...]
) -> None:
    kubectl("apply", "--filename=-", document=manifest("both"))
    where = () if flags == ("--all-namespaces",) else (f"--namespace={namespace}",)
    command = [PATERNOSTER, "get", "--kubeconfig", *where, *flags]
    done = subprocess.run(command, env=kubectl.environment, capture_output=True, text=True, check=True)
    ours = [line.split() for line in done.stdout.splitlines()]
    theirs = [line.split() for line in kubectl("get", "llmd", *where, *flags).splitlines()]
    assert ours[0] == theirs[0]
    # Ages are a second apart.
    assert [row[:3] for row in ours] == [row[:3] for row in theirs]


def test_short_name_and_categories_find_it(kubectl: Kubectl, manifest: Manifest, namespace: str) -> None:
    kubectl("create", "--filename=-", document=manifest("named"))
    for kind in ("llmd", "llmdeployment", "llmdeployments", "llm", "all"):
        found = kubectl("get", kind, f"--namespace={namespace}", "--output=name").split()
        assert "llmdeployment.paternoster.dev/named" in found, kind


def test_explain_tells_what_a_field_means(kubectl: Kubectl, namespace: str) -> None:
    explanation = " ".join(kubectl("explain", "llmd.spec.concurrency").split())
    assert "steered from preemptions" in explanation
    assert "preemptionTargetPerThousand <integer> Requests preempted per thousand finished" in explanation
    assert "enum: Fixed, Auto, Advisory" in explanation
    assert "lastScaleTime" in kubectl("explain", "llmd.status", "--recursive")


class TestUnknownFields:
    """What `docs/kubernetes.md` says of them, verb by verb."""

    @pytest.mark.parametrize("verb", ["create", "apply", "apply --server-side", "replace"])
    def test_a_manifest_is_refused(self, kubectl: Kubectl, manifest: Manifest, namespace: str, verb: str) -> None:
        right, wrong = manifest("typo"), manifest("typo")
        wrong["spec"].setdefault("engine", {})["maxNumSeq"] = 4
        if verb == "replace":
            kubectl("create", "--filename=-", document=right)
        with pytest.raises(CommandError, match=r"spec\.engine\.maxNumSeq"):
            kubectl(*verb.split(), "--filename=-", document=wrong)

    @pytest.mark.parametrize(("path", "removed"), REMOVED_FIELDS.items())
    def test_one_that_was_removed_is_refused_with_its_successor(
        self, kubectl: Kubectl, manifest: Manifest, path: tuple[str, ...], removed: RemovedField
    ) -> None:
        def spec_with(value: object) -> Any:
            for name in reversed(path[1:]):
                value = {name: value}
            return value

        refusal = kubectl.refusal(manifest(**spec_with("other" if removed.type == "string" else 3)))
        assert ".".join(path) in refusal
        assert removed.advice in refusal
        if removed.default is not None:
            assert kubectl.refusal(manifest(**spec_with(removed.default))) == ""

    def test_a_patch_is_taken_without_it(self, kubectl: Kubectl, manifest: Manifest, namespace: str) -> None:
        kubectl("create", "--filename=-", document=manifest("patched"))
        patch = json.dumps({"spec": {"engine": {"maxNumSeq": 4}}})
        words = ["kubectl", "patch", "llmd", "patched", f"--namespace={namespace}", "--type=merge", f"--patch={patch}"]
        done = subprocess.run(words, capture_output=True, text=True, env=kubectl.environment, check=True)
        assert "patched" in done.stdout
        assert 'Warning: unknown field "spec.engine.maxNumSeq"' in done.stderr
        assert "maxNumSeq" not in kubectl.get("llmd", "patched", namespace)["spec"]["engine"]


def table(kubectl: Kubectl, kind: str, name: str, namespace: str, *words: str) -> tuple[list[str], list[str]]:
    """Header and only row."""
    header, row = kubectl("get", kind, name, f"--namespace={namespace}", *words).splitlines()
    return header.split(), row.split()
