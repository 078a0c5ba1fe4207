"""What of a resource needs a cluster: refused, or told where this machine goes on without it. Pure."""

from collections.abc import Iterable

from paternoster_operator.api.pod.template import PodTemplate
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.model_source import model_claim


def unused(resources: Iterable[LLMDeployment]) -> list[str]:
    """A line for each part that has no meaning for processes."""
    return [
        f"{resource.metadata.name}: spec.podTemplate is not used on this machine: engines are processes here, with the "
        "environment of 'paternoster up' and the files of this machine"
        for resource in resources
        if resource.spec.pod_template != PodTemplate()
    ]


def refused(resources: Iterable[LLMDeployment]) -> list[str]:
    """A line for each part without which an engine cannot be: field, value and what is allowed."""
    return [
        f"{resource.metadata.name}: spec.model.source: is {resource.spec.model.source!r}: must be package:// or "
        "file:// on this machine, which has no PersistentVolumeClaims"
        for resource in resources
        if model_claim(resource.spec) is not None
    ]


def without_unused(resource: LLMDeployment) -> LLMDeployment:
    """The resource less those parts, so that a change of them restarts nothing."""
    return resource.model_copy(update={"spec": resource.spec.model_copy(update={"pod_template": PodTemplate()})})
