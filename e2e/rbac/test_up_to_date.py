"""The condition that a script waits for after an edit: all replicas are of the new spec and serve."""

from pathlib import Path

import pytest

from paternoster_e2e.fakes.engine import FakeEngines
from paternoster_e2e.fakes.fake_node import FakeNode
from paternoster_e2e.kubectl import Kubectl
from paternoster_e2e.local_operator import namespaced_operator
from paternoster_e2e.objects import merge, scratch_namespace
from paternoster_e2e.permissions import ChartPermissions
from paternoster_e2e.scenario import Scenario

pytestmark = pytest.mark.timeout(600)


def test_a_wait_right_after_an_edit_ends_when_no_older_replica_is_left(
    kubectl: Kubectl, node: FakeNode, engines: FakeEngines, crd: None, namespaced: ChartPermissions, tmp_path: Path
) -> None:
    with scratch_namespace(kubectl, "rolling") as namespace:
        fleet = Scenario(kubectl, node, engines, namespace, (namespace, namespaced.lease_name))
        fleet.create()
        with namespaced_operator(kubectl, namespaced, namespace, tmp_path):
            fleet.pass_all(("lead", "deployment", "ready"))
            for sequences in ("24", "12", "48"):
                edit = {"spec": {"engine": {"maxNumSeqs": int(sequences)}}}
                merge(kubectl, "llmd", namespace, fleet.name, edit)
                here = (f"llmd/{fleet.name}", f"--namespace={namespace}", "--timeout=120s")
                kubectl("wait", "--for=condition=UpToDate", *here, timeout=130)
                pods = [pod for pod in fleet.pods() if "deletionTimestamp" not in pod["metadata"]]
                words = [pod["spec"]["containers"][0]["args"] for pod in pods]
                assert [args[args.index("--max-num-seqs") + 1] for args in words] == [sequences] * 2
