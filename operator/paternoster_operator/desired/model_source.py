"""Where the engine finds its model, and what of the pod brings it there."""

from typing import Any

from paternoster_operator.api.pod.owned import MODEL_FOLDER, MODEL_VOLUME
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec

_CLAIM = "pvc://"


def engine_source(spec: LLMDeploymentSpec) -> str:
    """What the engine is told: a claim is a folder to it."""
    claim, path = _claim(spec)
    return spec.model.source if claim is None else f"file://{MODEL_FOLDER}{path.rstrip('/')}"


def model_claim(spec: LLMDeploymentSpec) -> str | None:
    """Name of the PersistentVolumeClaim that has the model."""
    return _claim(spec)[0]


def model_volumes(spec: LLMDeploymentSpec) -> list[dict[str, Any]]:
    """The pod's volumes: the whole claim, as links in a folder may lead out of it."""
    claim = model_claim(spec)
    source = {"claimName": claim, "readOnly": True}
    return [] if claim is None else [{"name": MODEL_VOLUME, "persistentVolumeClaim": source}]


def model_mounts(spec: LLMDeploymentSpec) -> list[dict[str, Any]]:
    """The container's mounts."""
    mount = {"name": MODEL_VOLUME, "mountPath": MODEL_FOLDER, "readOnly": True}
    return [] if model_claim(spec) is None else [mount]


def _claim(spec: LLMDeploymentSpec) -> tuple[str | None, str]:
    """The claim and the path on it, which is empty or begins with a slash."""
    if not spec.model.source.startswith(_CLAIM):
        return None, ""
    claim, slash, path = spec.model.source.removeprefix(_CLAIM).partition("/")
    return claim, slash + path
