"""The init container that fetches a model into the cache, and what the engine needs to find it there.

It runs the operator's image, which has no torch: the credentials are in a container with a thirtieth of the code, and
what is wrong with a source is reported before a node has pulled gigabytes of an engine.
"""

from typing import Any

from paternoster_contract import labels
from paternoster_contract.quantity import parse_quantity
from paternoster_operator.api.pod.owned import MODEL_FOLDER, MODEL_VOLUME, TMP_FOLDER, TMP_VOLUME
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.desired.model_source import MODEL_LINK, is_linked
from paternoster_operator.desired.resources import build_fetch_resources, cache_limit

OFFLINE_ENV = "HF_HUB_OFFLINE"
"""The hub's own name for it."""
STATUS_FILE = "/dev/termination-log"
"""What is there when a container ends is the message of its end; Kubernetes' own default."""


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
