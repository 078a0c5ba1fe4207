"""What of a resource needs a cluster: refused, or reported where this machine goes on without it. Pure."""

from collections.abc import Iterable, Iterator

from paternoster_contract.labels import MODELS_ENV
from paternoster_operator.api.pod.template import PodTemplate
from paternoster_operator.api.v1alpha1 import LLMDeployment, LLMDeploymentSpec
from paternoster_operator.engines.adapter import RuntimeType
from paternoster_operator.engines.openai_arguments import PORT_ENV
from paternoster_sources.address import IN_REGISTRY


def list_unused(resources: Iterable[LLMDeployment]) -> list[str]:
    """A line for each part that has no meaning for processes."""
    return [
        f"{resource.metadata.name}: {field} is not used on this machine: {instead}"
        for resource in resources
        for field, instead in _find_unused(resource.spec)
    ]


def _find_unused(spec: LLMDeploymentSpec) -> Iterator[tuple[str, str]]:
    """Each such field, and what there is instead."""
    if spec.pod_template != PodTemplate():
        yield (
            "spec.podTemplate",
            "engines are processes here, with the environment of 'paternoster up' and the files of this machine",
        )
    if spec.model.credentials_secret_ref is not None:
        yield "spec.model.credentialsSecretRef", "engines fetch with the environment of 'paternoster up'"
    if spec.model.cache is not None:
        yield "spec.model.cache", f"models are kept where ${MODELS_ENV} says, or below ~/.cache"


def list_refused(resources: Iterable[LLMDeployment]) -> list[str]:
    """A line for each part without which an engine cannot be: field, value and what is allowed."""
    resources = list(resources)
    observing = [
        f"{resource.metadata.name}: spec.targetRef: names Deployment {resource.spec.target_ref.name}: must be unset on "
        "this machine, which has no Deployments but its own"
        for resource in resources
        if resource.spec.target_ref is not None
    ]
    resources = [resource for resource in resources if resource.spec.target_ref is None]
    without_program = [
        f"{resource.metadata.name}: spec.engine.runtime.command: is unset: must name the program on this machine, "
        "which runs no images"
        for resource in resources
        if resource.spec.engine.runtime.is_foreign and not resource.spec.engine.runtime.command
    ]
    without_port = [
        f"{resource.metadata.name}: spec.engine.runtime.args: must have $({PORT_ENV}): this machine's engines have "
        "ports of its choice"
        for resource in resources
        if resource.spec.engine.runtime.type is RuntimeType.OPENAI and not _names_port(resource.spec)
    ]
    return (
        observing
        + without_program
        + without_port
        + [
            f"{resource.metadata.name}: spec.model.source: is {resource.spec.model.source!r}: must be another than "
            f"{instead}"
            for resource in resources
            for instead in _find_missing(resource.spec)
        ]
    )


def _names_port(spec: LLMDeploymentSpec) -> bool:
    runtime = spec.engine.runtime
    words = [*runtime.command, *runtime.args, *(variable.value for variable in runtime.env)]
    return any(f"$({PORT_ENV})" in word for word in words)


def _find_missing(spec: LLMDeploymentSpec) -> Iterator[str]:
    """What a model's source needs of a cluster."""
    if spec.model.claim is not None:
        yield "pvc:// on this machine, which has no PersistentVolumeClaims"
    if spec.model.image is not None:
        yield f"oci:// on this machine: {IN_REGISTRY}"


def without_unused(resource: LLMDeployment) -> LLMDeployment:
    """The resource less those parts, so that a change of them restarts nothing."""
    spec = resource.spec
    model = spec.model.model_copy(update={"credentials_secret_ref": None, "cache": None})
    return resource.model_copy(update={"spec": spec.model_copy(update={"pod_template": PodTemplate(), "model": model})})
