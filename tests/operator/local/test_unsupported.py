"""What a manifest says of pods is told and left out where there are none."""

from collections.abc import Callable

import pytest

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.local.unsupported import unused, without_unused

Resource = Callable[..., LLMDeployment]


@pytest.mark.parametrize("template", [{"spec": {"hostIPC": True}}, {"metadata": {"labels": {"team": "lifts"}}}])
def test_a_pod_template_is_named_and_left_out(resource: Resource, template: dict[str, object]) -> None:
    fleet = resource(podTemplate=template, replicas=2)
    (line,) = unused([fleet])
    assert line.startswith("ride: spec.podTemplate is not used on this machine")
    assert without_unused(fleet) == resource(replicas=2)


def test_nothing_is_said_of_a_resource_that_needs_no_cluster(resource: Resource) -> None:
    assert unused([resource(), resource(podTemplate={"spec": {}})]) == []
    assert without_unused(resource(replicas=2)) == resource(replicas=2)
