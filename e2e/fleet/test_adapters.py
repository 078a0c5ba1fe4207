"""Adapters (LoRA) of a manifest: served within seconds and taken back in pods that stay, a broken one beside them."""

import base64
import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from paternoster_e2e.kubectl import Document, condition, until

pytestmark = pytest.mark.timeout(600)

LAYERS, WIDTH = 30, 576
"""SmolLM2's."""
VOLUME = {"name": "adapters", "configMap": {"name": "adapters"}}
MOUNT = {"name": "adapters", "mountPath": "/adapters"}
SPEC: Document = {
    "engine": {"memory": {"maxAdapterMemory": "64Mi"}},
    "podTemplate": {"spec": {"containers": [{"name": "engine", "volumeMounts": [MOUNT]}], "volumes": [VOLUME]}},
}


def make_adapter(seed: int) -> dict[str, str]:
    """The files of an adapter of rank 1 as PEFT writes them, in base64."""
    generator, tensors = np.random.default_rng(seed), {}
    for layer in range(LAYERS):
        for part, shape in (("A", (1, WIDTH)), ("B", (WIDTH, 1))):
            name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{part}.weight"
            tensors[name] = generator.standard_normal(shape, dtype=np.float32)
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"]}
    files = {"adapter_config.json": json.dumps(config).encode(), "adapter_model.safetensors": save(tensors)}
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


def test_adapters_come_and_go_in_pods_that_stay(fleet: Any) -> None:
    metadata = {"name": "adapters", "namespace": fleet.namespace}
    fleet.kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": make_adapter(1)})
    fleet.apply(**SPEC)
    fleet.until_ready()
    [pod] = fleet.pods()
    good, broken = f"{fleet.name}-sql", f"{fleet.name}-broken"
    assert fleet.chat(model=good).status_code == 404

    sources = [{"name": good, "source": "file:///adapters"}, {"name": broken, "source": "file:///nowhere"}]
    fleet.apply(**SPEC, adapters=sources)
    answer = until(lambda: (found := fleet.chat(model=good)).status_code == 200 and found, "the adapter is served", 60)
    assert answer.json()["model"] == good
    until(lambda: condition(fleet.get(), "AdaptersLoaded").get("reason") == "LoadFailed", "the broken one is named", 60)
    status = fleet.get()["status"]
    assert [(each["name"], each["replicas"], each.get("reason")) for each in status["adapters"]] == [
        (good, 1, None),
        (broken, 0, "LoadFailed"),
    ]
    assert condition(fleet.get(), "Ready")["status"] == "True"
    assert fleet.chat(model=broken).status_code == 503
    assert fleet.chat().status_code == 200

    fleet.apply(**SPEC)
    until(lambda: fleet.chat(model=good).status_code == 404, "the adapter is gone", 60)
    until(lambda: not fleet.get()["status"].get("adapters"), "the status has none", 60)
    [same] = fleet.pods()
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert [each["restartCount"] for each in same["status"]["containerStatuses"]] == [0]
