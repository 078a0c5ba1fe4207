"""An operator of one namespace, with what the chart gives it there and nothing else."""

import time
from pathlib import Path

from paternoster_e2e.fakes.engine import FakeEngines
from paternoster_e2e.fakes.fake_node import FakeNode
from paternoster_e2e.kubectl import Kubectl
from paternoster_e2e.local_operator import namespaced_operator
from paternoster_e2e.objects import scratch_namespace
from paternoster_e2e.permissions import ChartPermissions
from paternoster_e2e.scenario import Scenario

UNSEEN_SECONDS = 5


def test_the_charts_rules_are_enough(
    kubectl: Kubectl, node: FakeNode, engines: FakeEngines, crd: None, namespaced: ChartPermissions, tmp_path: Path
) -> None:
    with scratch_namespace(kubectl, "rbac") as namespace:
        scenario = Scenario(kubectl, node, engines, namespace, (namespace, namespaced.lease_name))
        scenario.create()
        with namespaced_operator(kubectl, namespaced, namespace, tmp_path) as operator:
            scenario.pass_all()
            assert operator.refusals == []
        assert not scenario.reached("lead"), "an operator that ends gives its lease back"


def test_other_namespaces_are_left_alone(
    kubectl: Kubectl, node: FakeNode, engines: FakeEngines, crd: None, namespaced: ChartPermissions, tmp_path: Path
) -> None:
    with scratch_namespace(kubectl, "rbac-own") as own, scratch_namespace(kubectl, "rbac-foreign") as foreign:
        ours, others = (
            Scenario(kubectl, node, engines, place, (own, namespaced.lease_name), name)
            for place, name in ((own, "ours"), (foreign, "others"))
        )
        others.create()
        ours.create()
        with namespaced_operator(kubectl, namespaced, own, tmp_path) as operator:
            ours.pass_all(("lead", "service", "budget", "deployment", "ready"))
            time.sleep(UNSEEN_SECONDS)
            assert operator.models() == {"ours"}
            assert operator.refusals == []
        assert kubectl.list("all,poddisruptionbudgets", foreign) == [kubectl.get("llmd", "others", foreign)]
        assert kubectl.get("llmd", "others", foreign)["status"]["observedGeneration"] == -1
