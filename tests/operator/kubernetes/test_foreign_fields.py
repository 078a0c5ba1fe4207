"""Managed fields as an API server has them: what is foreign in them, and what is left once the operator adopted it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.labels import MANAGER
from paternoster_operator.cluster.foreign_fields import (
    adopt_foreign_fields,
    describe_foreign_fields,
    find_foreign_fields,
)

CONTAINER = 'k:{"name":"engine"}'
OWN = {
    "f:metadata": {"f:labels": {"f:a": {}}},
    "f:spec": {
        "f:replicas": {},
        "f:template": {"f:spec": {"f:containers": {CONTAINER: {".": {}, "f:name": {}, "f:image": {}}}}},
    },
}


def entry(manager: str, fields: dict[str, Any], operation: str = "Update", **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields, **more}


def child(*entries: dict[str, Any]) -> dict[str, Any]:
    managed = [entry(MANAGER, OWN, "Apply"), *entries]
    return {"kind": "Deployment", "metadata": {"name": "ride", "managedFields": managed}}


def template(fields: dict[str, Any]) -> dict[str, Any]:
    return {"f:spec": {"f:template": fields}}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"f:spec": {"f:paused": {}}}, ["spec.paused"]),
        (template({"f:spec": {"f:hostNetwork": {}}}), ["spec.template.spec.hostNetwork"]),
        (
            template({"f:spec": {"f:containers": {'k:{"name":"beside"}': {".": {}, "f:image": {}, "f:name": {}}}}}),
            ["spec.template.spec.containers[beside]"],
        ),
        (
            template(
                {"f:spec": {"f:containers": {CONTAINER: {"f:env": {'k:{"name":"A"}': {".": {}, "f:value": {}}}}}}}
            ),
            ["spec.template.spec.containers[engine].env[A]"],
        ),
        (
            {"f:spec": {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}}},
            ["spec.ports[80,TCP]"],
        ),
        ({"f:spec": {"f:finalizers": {'v:"kubernetes"': {}}}}, ["spec.finalizers[kubernetes]"]),
        ({"f:data": {".": {}, "f:key": {}}}, ["data"]),
        # What the operator has as well, and what its own is within.
        ({"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {".": {}}}}}}, []),
        # Labels and annotations of the object itself are for all tools.
        ({"f:metadata": {"f:annotations": {".": {}, "f:note": {}}}}, []),
        (template({"f:metadata": {"f:annotations": {".": {}, "f:kubectl.kubernetes.io/restartedAt": {}}}}), []),
        (
            template({"f:metadata": {"f:annotations": {"f:kubectl.kubernetes.io/restartedAt": {}, "f:who": {}}}}),
            ["spec.template.metadata.annotations.who"],
        ),
    ],
    ids=json.dumps,
)
def test_what_only_others_have_is_foreign(fields: dict[str, Any], found: list[str]) -> None:
    seen = child(entry("kubectl-edit", fields))
    assert find_foreign_fields(seen) == ({"kubectl-edit": found} if found else {})
    adopted = adopt_foreign_fields(seen["metadata"]["managedFields"])
    assert find_foreign_fields({"metadata": {"managedFields": adopted}}) == {}


def test_subresources_have_writers_of_their_own() -> None:
    scaled = entry("kube-controller-manager", {"f:spec": {"f:anything": {}}}, subresource="scale")
    seen = child(scaled, entry("kube-controller-manager", {"f:status": {"f:replicas": {}}}, subresource="status"))
    assert find_foreign_fields(seen) == {}
    assert adopt_foreign_fields(seen["metadata"]["managedFields"]) == seen["metadata"]["managedFields"]


def test_an_update_under_the_operators_name_is_not_its_apply() -> None:
    seen = child(entry(MANAGER, {"f:spec": {"f:paused": {}}}), entry("b", {"f:spec": {"f:x": {}, "f:y": {}}}))
    assert describe_foreign_fields(seen) == (
        f"Deployment ride: spec.x, spec.y (set by b); spec.paused (set by {MANAGER})"
    )


names = st.sampled_from(["f:metadata", "f:spec", "f:template", "f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])
tries = st.recursive(
    st.just({}), lambda inner: st.dictionaries(names, inner, min_size=1, max_size=3).map(lambda d: {**d, ".": {}})
)
roots = st.dictionaries(st.sampled_from(["f:metadata", "f:spec", "f:data"]), tries, max_size=3)


def leaves(trie: dict[str, Any], above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Owned fields, read without the code under test."""
    owned = set()
    for key, below in trie.items():
        owned |= {above} if key == "." else leaves(below, (*above, key)) or {(*above, key)}
    return owned


@given(roots, st.lists(roots, max_size=3))
def test_no_field_is_lost_and_none_of_another_manager_is_left(
    own: dict[str, Any], others: list[dict[str, Any]]
) -> None:
    managed = [entry(MANAGER, own, "Apply"), *(entry(f"m{i}", fields) for i, fields in enumerate(others))]
    adopted = adopt_foreign_fields(managed)
    assert find_foreign_fields({"metadata": {"managedFields": adopted}}) == {}
    before = set().union(*(leaves(each["fieldsV1"]) for each in managed))
    after = set().union(*(leaves(each["fieldsV1"]) for each in adopted))
    # Each field still has a manager, so the API server forgets none, and the operator keeps all of its own.
    assert after == before if leaves(own) else after <= before
    owned = {path for each in adopted if each["manager"] == MANAGER for path in leaves(each["fieldsV1"])}
    assert owned >= leaves(own)
    for each in adopted:
        if each["manager"] != MANAGER:
            assert leaves(each["fieldsV1"]) <= leaves(others[int(each["manager"][1:])])
