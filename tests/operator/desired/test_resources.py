"""What engines ask for by default, and what a manifest that names a part of it gets."""

from collections.abc import Callable
from typing import Any

import pytest

from paternoster_contract.quantity import parse_quantity
from paternoster_engine.limits import KV_CACHE_MEMORY
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.children import RootKeys, build_children
from paternoster_operator.desired.resources import CPU_KV_CACHE, build_resources

Resource = Callable[..., LLMDeployment]
STORAGE = {"ephemeral-storage": "128Mi"}


def test_the_pool_that_is_counted_is_the_engines() -> None:
    assert parse_quantity(CPU_KV_CACHE) == KV_CACHE_MEMORY["cpu"]


@pytest.mark.parametrize(
    ("spec", "memory"),
    [
        ({}, "1536Mi"),
        ({"engine": {"kvCacheMemory": "64Mi"}}, "1088Mi"),
        ({"engine": {"kvCacheMemory": "1G"}}, "1978Mi"),
        ({"engine": {"memory": {"swapMemory": "1Gi"}}}, "1536Mi"),
        ({"engine": {"memory": {"preemption": "swap", "swapMemory": "1Gi"}}}, "2560Mi"),
        ({"engine": {"memory": {"maxAdapterMemory": "1Gi"}}}, "2560Mi"),
        ({"engine": {"kvCacheMemory": "20Gi"}, "resources": {"gpu": {"count": 1}}}, "1024Mi"),
        ({"resources": {"gpu": {"count": 1}}}, "1024Mi"),
    ],
)
def test_memory_is_asked_for_the_pool_and_the_rest(resource: Resource, spec: dict[str, Any], memory: str) -> None:
    found = build_resources(resource(**spec).spec)
    assert found["requests"] == {"memory": memory, **STORAGE}
    assert "memory" not in found["limits"]


@pytest.mark.parametrize(
    ("given", "requests", "limits"),
    [
        ({"requests": {"cpu": "1"}}, {"cpu": "1", "memory": "1536Mi", **STORAGE}, {"ephemeral-storage": "4Gi"}),
        # The API server makes it the request, too; a larger one would be refused.
        ({"limits": {"memory": "1Gi"}}, STORAGE, {"memory": "1Gi", "ephemeral-storage": "4Gi"}),
        ({"requests": {"memory": "2Gi"}}, {"memory": "2Gi", **STORAGE}, {"ephemeral-storage": "4Gi"}),
        ({"limits": {"ephemeral-storage": "1Mi"}}, {"memory": "1536Mi"}, {"ephemeral-storage": "1Mi"}),
        ({"requests": {"ephemeral-storage": "8Gi"}}, {"memory": "1536Mi", "ephemeral-storage": "8Gi"}, None),
    ],
)
def test_what_the_manifest_names_is_left_alone(
    resource: Resource, given: dict[str, Any], requests: dict[str, str], limits: dict[str, str] | None
) -> None:
    found = build_resources(resource(resources=given).spec)
    assert (found["requests"], found.get("limits")) == (requests, limits)


@pytest.mark.parametrize(
    ("given", "volume"),
    [
        ({}, {"sizeLimit": "4Gi"}),
        ({"limits": {"ephemeral-storage": "1Gi"}}, {"sizeLimit": "1Gi"}),
        ({"requests": {"ephemeral-storage": "8Gi"}}, {}),
    ],
)
def test_tmp_is_as_large_as_the_files_may_get(
    resource: Resource, given: dict[str, Any], volume: dict[str, str]
) -> None:
    pod = build_children(resource(resources=given), 1, RootKeys(["r"]))[-1]["spec"]["template"]["spec"]
    assert pod["volumes"][:1] == [{"name": "tmp", "emptyDir": volume}]


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, 1800),
        ({"resources": {"requests": {"memory": "64Gi"}}}, 1800),
        ({"resources": {"limits": {"memory": "512Gi"}}}, 8192),
        ({"resources": {"gpu": {"count": 1}}}, 1800),
        ({"resources": {"gpu": {"count": 8}}}, 10_240),
        ({"resources": {"limits": {"memory": "100Ti"}}}, 86_400),
        ({"resources": {"gpu": {"count": 8}}, "engine": {"startupTimeoutSeconds": 61}}, 61),
    ],
)
def test_a_model_has_the_time_that_its_size_may_need(resource: Resource, spec: dict[str, Any], seconds: int) -> None:
    deployment = build_children(resource(**spec), 1, RootKeys(["r"]))[-1]["spec"]
    probe = deployment["template"]["spec"]["containers"][0]["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == seconds + seconds % 2
    assert deployment["progressDeadlineSeconds"] == seconds
