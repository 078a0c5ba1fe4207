"""Where the engine finds its model, and what of the pod brings it there."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from paternoster_operator.api.pod.owned import MODEL_FOLDER, MODEL_VOLUME, TMP_FOLDER
from paternoster_operator.api.types.model import ModelCache
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.engines.adapter import RuntimeType

MODEL_LINK = f"{TMP_FOLDER}/model"
"""A link to the folder of a fetched model, for engines that do not know the cache."""
_CLAIM = "pvc://"


def is_linked(spec: LLMDeploymentSpec) -> bool:
    """Whether the engine finds a fetched model at :data:`MODEL_LINK`; our own looks into the cache itself."""
    return spec.model.remote and spec.engine.runtime.type is not RuntimeType.PATERNOSTER


def engine_source(spec: LLMDeploymentSpec) -> str:
    """The model's address for the engine: a claim is a folder to it, and so are an image and a fetched model."""
    if is_linked(spec):
        file = spec.model.remote_file
        return f"file://{MODEL_LINK}" if file is None else f"file://{MODEL_LINK}/{quote(file)}"
    if (image := spec.model.image) is not None:
        return f"file://{MODEL_FOLDER}/{image.path}".rstrip("/")
    claim, path = _find_claim(spec)
    return spec.model.source if claim is None else f"file://{MODEL_FOLDER}{path.rstrip('/')}"


def model_claim(spec: LLMDeploymentSpec) -> str | None:
    """Name of the PersistentVolumeClaim that has the model."""
    return _find_claim(spec)[0]


def model_volumes(spec: LLMDeploymentSpec) -> list[dict[str, Any]]:
    """The pod's volumes: the whole claim, as links in a folder may lead out of it; the image; or the cache."""
    if (image := spec.model.image) is not None:
        policy = {} if spec.model.image_pull_policy is None else {"pullPolicy": spec.model.image_pull_policy.value}
        # Not a subPath: containerd before 2.2 would mount the whole image and say nothing.
        return [{"name": MODEL_VOLUME, "image": {"reference": image.reference, **policy}}]
    if (claim := model_claim(spec)) is not None:
        return [{"name": MODEL_VOLUME, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}]
    return [{"name": MODEL_VOLUME, **_cache_volume(spec.model.cache)}] if spec.model.remote else []


def model_mounts(spec: LLMDeploymentSpec) -> list[dict[str, Any]]:
    """The engine's mounts."""
    return [{"name": MODEL_VOLUME, "mountPath": MODEL_FOLDER, "readOnly": True}] if _has_volume(spec) else []


def pull_secrets(spec: LLMDeploymentSpec, of_all: Sequence[str]) -> list[dict[str, Any]]:
    """The Secrets that the node pulls with: the pod's, that of the model's image, and those ``of_all`` fleets."""
    secrets = [secret.name for secret in spec.image_pull_secrets]
    if spec.model.image is not None and spec.model.credentials_secret_ref is not None:
        secrets.append(spec.model.credentials_secret_ref.name)
    return [{"name": name} for name in dict.fromkeys([*secrets, *of_all])]


def _has_volume(spec: LLMDeploymentSpec) -> bool:
    return spec.model.remote or spec.model.image is not None or model_claim(spec) is not None


def _cache_volume(cache: ModelCache | None) -> dict[str, Any]:
    if cache is not None and cache.claim is not None:
        return {"persistentVolumeClaim": {"claimName": cache.claim.name}}
    if cache is not None and cache.host_path is not None:
        return {"hostPath": {"path": cache.host_path.path, "type": "DirectoryOrCreate"}}
    limit = None if cache is None or cache.empty_dir is None else cache.empty_dir.size_limit
    return {"emptyDir": {} if limit is None else {"sizeLimit": limit}}


def _find_claim(spec: LLMDeploymentSpec) -> tuple[str | None, str]:
    """The claim and the path on it, which is empty or begins with a slash."""
    if not spec.model.source.startswith(_CLAIM):
        return None, ""
    claim, slash, path = spec.model.source.removeprefix(_CLAIM).partition("/")
    return claim, slash + path
