"""The place of an engine's model, and the volume or init container of its pod that brings it there.

The init container runs the operator's image, which has no torch: the credentials are in a container with a thirtieth of
the code, and what is wrong with a source is reported before a node has pulled gigabytes of an engine.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any
from urllib.parse import quote

from paternoster_contract import labels
from paternoster_contract.quantity import parse_quantity
from paternoster_operator.api.pod.owned import MODEL_FOLDER, MODEL_VOLUME, TMP_FOLDER, TMP_VOLUME
from paternoster_operator.api.types.model import Model
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.desired.pod_parts import CONTAINER_SECURITY, PodParts
from paternoster_operator.desired.resources import scratch_limit

MODEL_LINK = f"{TMP_FOLDER}/model"
"""A link to the folder of a fetched model, for engines that do not know the cache."""
OFFLINE_ENV = "HF_HUB_OFFLINE"
"""The hub's own name for it."""
STATUS_FILE = "/dev/termination-log"
"""What is there when a container ends is the message of its end; Kubernetes' own default."""
STATUS_FLAGS = ("--status-port", str(labels.ADMIN_PORT), "--status-file", STATUS_FILE)
"""Progress is published where an engine has its stats, and the end in the container's termination message."""
FOLDER_ENV = {labels.MODELS_ENV: MODEL_FOLDER}


def engine_source(spec: LLMDeploymentSpec) -> str:
    """The model's address for the engine: a claim is a folder to it, and so are an image and a fetched model."""
    if spec.model.remote and spec.engine.runtime.is_foreign:  # our own looks into the cache itself
        file = spec.model.remote_file
        return f"file://{MODEL_LINK}" if file is None else f"file://{MODEL_LINK}/{quote(file)}"
    if (image := spec.model.image) is not None:
        return f"file://{MODEL_FOLDER}/{image.path}".rstrip("/")
    claim = spec.model.claim
    return spec.model.source if claim is None else f"file://{MODEL_FOLDER}{claim[1].rstrip('/')}"


def model_parts(spec: LLMDeploymentSpec, fetch_image: str, fetch_resources: Mapping[str, Any]) -> PodParts:
    """The container that fetches the model where one does, the volume that has it, and where the engine finds it."""
    volume = _model_volume(spec.model)
    if volume is None:
        return PodParts()
    return PodParts(
        init_containers=[_fetch_container(spec, fetch_image, fetch_resources)] if spec.model.remote else [],
        volumes=[{"name": MODEL_VOLUME, **volume}],
        mounts=[{"name": MODEL_VOLUME, "mountPath": MODEL_FOLDER, "readOnly": True}],
    )


def pull_secrets(spec: LLMDeploymentSpec, of_all: Sequence[str]) -> list[dict[str, Any]]:
    """The Secrets that the node pulls with: the pod's, that of the model's image, and those ``of_all`` fleets."""
    secrets = [secret.name for secret in spec.image_pull_secrets]
    if spec.model.image is not None and spec.model.credentials_secret_ref is not None:
        secrets.append(spec.model.credentials_secret_ref.name)
    return [{"name": name} for name in dict.fromkeys([*secrets, *of_all])]


def _model_volume(model: Model) -> dict[str, Any] | None:
    """The whole claim, as links in a folder may lead out of it; the image; or the cache."""
    if (image := model.image) is not None:
        policy = {} if model.image_pull_policy is None else {"pullPolicy": model.image_pull_policy.value}
        # Not a subPath: containerd before 2.2 would mount the whole image without an error.
        return {"image": {"reference": image.reference, **policy}}
    if (claim := model.claim) is not None:
        return {"persistentVolumeClaim": {"claimName": claim[0], "readOnly": True}}
    return _cache_volume(model) if model.remote else None


def _cache_volume(model: Model) -> dict[str, Any]:
    cache, limit = model.cache, model.cache_limit
    if cache is not None and cache.claim is not None:
        return {"persistentVolumeClaim": {"claimName": cache.claim.name}}
    if cache is not None and cache.host_path is not None:
        return {"hostPath": {"path": cache.host_path.path, "type": "DirectoryOrCreate"}}
    return {"emptyDir": {} if limit is None else {"sizeLimit": limit}}


def _fetch_container(spec: LLMDeploymentSpec, image: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    """Container that fetches the model; its image is pulled when the engine's is."""
    credentials, limit = spec.model.credentials_secret_ref, spec.model.cache_limit
    link = ["--link", MODEL_LINK] if spec.engine.runtime.is_foreign else []
    # What does not fit is refused by name, before the kubelet evicts the pod for it.
    limited = {} if limit is None else {labels.MODELS_LIMIT_ENV: str(int(parse_quantity(limit)))}
    container = {
        "name": labels.MODEL_CONTAINER,
        "image": image,
        "imagePullPolicy": spec.engine.image_pull_policy.value,
        "command": ["paternoster", "pull"],
        # What one replica of a fleet has fetched the next one takes, whatever a branch says by then.
        "args": [spec.model.source, "--no-refresh", *STATUS_FLAGS, *link],
        "env": _list_env(**FOLDER_ENV, **limited),
        "envFrom": [] if credentials is None else [{"secretRef": {"name": credentials.name}}],
        "terminationMessagePath": STATUS_FILE,
        # Where it ended before it could say why.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": resources,
        "securityContext": deepcopy(CONTAINER_SECURITY),
        "volumeMounts": [
            {"name": TMP_VOLUME, "mountPath": TMP_FOLDER},
            {"name": MODEL_VOLUME, "mountPath": MODEL_FOLDER},
        ],
    }
    return {name: value for name, value in container.items() if value not in ({}, [])}


def engine_env(spec: LLMDeploymentSpec) -> list[dict[str, Any]]:
    """The engine finds the model in the cache, and never asks for it itself; adapters it fetches, into /tmp."""
    model = FOLDER_ENV if spec.model.remote else {}
    if not parse_quantity(spec.engine.memory.max_adapter_memory or "0"):
        return _list_env(**model, **{OFFLINE_ENV: "1"}) if model else []
    storage = scratch_limit(spec)
    limit = {} if storage is None else {labels.ADAPTERS_LIMIT_ENV: str(int(parse_quantity(storage) / 2))}
    return _list_env(**model, **{labels.ADAPTERS_ENV: f"{TMP_FOLDER}/adapters"}, **limit)


def _list_env(**variables: str) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in variables.items()]
