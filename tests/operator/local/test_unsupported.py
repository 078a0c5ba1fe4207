"""What a manifest sets of pods is reported and left out where there are none."""

from collections.abc import Callable

import pytest

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.engine_args import engine_args
from paternoster_operator.local.unsupported import list_refused, list_unused, without_unused

Resource = Callable[..., LLMDeployment]


@pytest.mark.parametrize("template", [{"spec": {"hostIPC": True}}, {"metadata": {"labels": {"team": "lifts"}}}])
def test_a_pod_template_is_named_and_left_out(resource: Resource, template: dict[str, object]) -> None:
    fleet = resource(podTemplate=template, replicas=2)
    (line,) = list_unused([fleet])
    assert line.startswith("ride: spec.podTemplate is not used on this machine")
    assert without_unused(fleet) == resource(replicas=2)


def test_models_are_fetched_with_this_machines_environment_and_cache(resource: Resource) -> None:
    source = "hf://org/name"
    cache = {"claim": {"name": "models"}}
    fleet = resource(model={"source": source, "credentialsSecretRef": {"name": "hub"}, "cache": cache})
    credentials, cache_warning = list_unused([fleet])
    assert credentials.startswith("ride: spec.model.credentialsSecretRef is not used on this machine")
    assert cache_warning.startswith(
        "ride: spec.model.cache is not used on this machine: models are kept where $PATERNOSTER_MODELS"
    )
    assert without_unused(fleet) == resource(model={"source": source})
    assert engine_args(without_unused(fleet)).model == source


@pytest.mark.parametrize(
    ("source", "message"), [("pvc://models", "PersistentVolumeClaims"), ("oci://a.b/8b", "skopeo copy")]
)
def test_what_needs_a_cluster_is_refused(resource: Resource, source: str, message: str) -> None:
    (line,) = list_refused([resource(model={"source": source})])
    assert line.startswith(f"ride: spec.model.source: is '{source}': must be another than")
    assert message in line


def test_nothing_is_said_of_a_resource_that_needs_no_cluster(resource: Resource) -> None:
    assert list_unused([resource(), resource(podTemplate={"spec": {}})]) == []
    assert without_unused(resource(replicas=2)) == resource(replicas=2)


def test_a_deployment_to_observe_is_refused(resource: Resource) -> None:
    fleet = resource(
        targetRef={"name": "chat"},
        model={"source": "hf://org/name"},
        engine={"runtime": {"type": "VLLM"}},
        autoscaling={"maxReplicas": 2, "mode": "Advisory"},
    )
    (line,) = list_refused([fleet])
    assert line.startswith("ride: spec.targetRef: names Deployment chat: must be unset on this machine")
