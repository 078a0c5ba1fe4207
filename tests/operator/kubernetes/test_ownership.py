"""Whose a pod is, by the uids of the chain of its controllers."""

from typing import Any

import pytest

from paternoster_operator.cluster.ownership import own_pods

DEPLOYMENT = {"metadata": {"uid": "deployment"}}


def made(uid: str, by: str | None, template: str | None = "one", *, controls: bool = True) -> dict[str, Any]:
    references = [] if by is None else [{"kind": "Any", "name": "any", "uid": by, "controller": controls}]
    labels = {} if template is None else {"pod-template-hash": template}
    return {"metadata": {"uid": uid, "labels": labels, "ownerReferences": references}}


def test_a_pod_that_the_deployment_made_is_its_own() -> None:
    pod = made("pod", "set")
    assert own_pods([pod], [made("set", "deployment")], DEPLOYMENT) == [pod]


@pytest.mark.parametrize(
    ("pod", "replica_set"),
    [
        (made("pod", None), made("set", "deployment")),
        (made("pod", "another"), made("set", "deployment")),
        (made("pod", "deployment"), made("set", "deployment")),
        (made("pod", "set", controls=False), made("set", "deployment")),
        (made("pod", "set", "two"), made("set", "deployment")),
        (made("pod", "set", None), made("set", "deployment", None)),
        (made("pod", "set"), made("set", "another")),
        (made("pod", "set"), made("set", None)),
        (made("pod", "set"), made("set", "deployment", controls=False)),
    ],
    ids=[
        "plain pod", "another's", "without a set", "not controlled", "another template", "no template", "a foreign set",
        "a set of nobody", "a set that is not controlled",
    ],
)  # fmt: skip
def test_labels_alone_make_no_pod_its_own(pod: Any, replica_set: Any) -> None:
    assert own_pods([pod], [replica_set], DEPLOYMENT) == []
