"""The place of an engine's model, and the volume or init container of its pod that brings it there.

The init container runs the operator's image, which has no torch: the credentials are in a container with a thirtieth of
the code, and what is wrong with a source is reported before a node has pulled gigabytes of an engine.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from paternoster_contract import labels
from paternoster_contract.quantity import parse_quantity
from paternoster_operator.api.pod.owned import MODEL_FOLDER, MODEL_VOLUME, TMP_FOLDER, TMP_VOLUME
from paternoster_operator.api.types.model import ModelCache
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.desired.resources import build_fetch_resources, cache_limit
from paternoster_operator.engines.adapter import RuntimeType

MODEL_LINK = f"{TMP_FOLDER}/model"
"""A link to the folder of a fetched model, for engines that do not know the cache."""
_CLAIM = "pvc://"
OFFLINE_ENV = "HF_HUB_OFFLINE"
"""The hub's own name for it."""
STATUS_FILE = "/dev/termination-log"
"""What is there when a container ends is the message of its end; Kubernetes' own default."""


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


def fetch_containers(spec: LLMDeploymentSpec, image: str, security: dict[str, Any]) -> list[dict[str, Any]]:
    """None where nothing is fetched. ``security`` is the engine's, and so is when the image is pulled."""
    if not spec.model.remote:
        return []
    credentials = spec.model.credentials_secret_ref
    container = {
        "name": labels.MODEL_CONTAINER,
        "image": image,
        "imagePullPolicy": spec.engine.image_pull_policy.value,
        "command": ["paternoster", "pull"],
        # What one replica of a fleet has fetched the next one takes, whatever a branch says by then.
        "args": [spec.model.source, "--no-refresh", *_status_flags(), *_link_flags(spec)],
        "env": [*_folder_env(), *_limit_env(spec)],
        "envFrom": [] if credentials is None else [{"secretRef": {"name": credentials.name}}],
        "terminationMessagePath": STATUS_FILE,
        # Where it ended before it could say why.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": build_fetch_resources(spec),
        "securityContext": security,
        "volumeMounts": [
            {"name": TMP_VOLUME, "mountPath": TMP_FOLDER},
            {"name": MODEL_VOLUME, "mountPath": MODEL_FOLDER},
        ],
    }
    return [{name: value for name, value in container.items() if value not in ({}, [])}]


def engine_env(spec: LLMDeploymentSpec) -> list[dict[str, Any]]:
    """The engine finds the model in the cache, and never asks for it itself."""
    return [*_folder_env(), {"name": OFFLINE_ENV, "value": "1"}] if spec.model.remote else []


def _status_flags() -> list[str]:
    """Publish progress where an engine has its stats, and the end in the container's termination message."""
    return ["--status-port", str(labels.ADMIN_PORT), "--status-file", STATUS_FILE]


def _link_flags(spec: LLMDeploymentSpec) -> list[str]:
    return ["--link", MODEL_LINK] if is_linked(spec) else []


def _folder_env() -> list[dict[str, Any]]:
    return [{"name": labels.MODELS_ENV, "value": MODEL_FOLDER}]


def _limit_env(spec: LLMDeploymentSpec) -> list[dict[str, Any]]:
    """What does not fit is refused by name, before the kubelet evicts the pod for it."""
    limit = cache_limit(spec)
    return [] if limit is None else [{"name": labels.MODELS_LIMIT_ENV, "value": str(int(parse_quantity(limit)))}]
