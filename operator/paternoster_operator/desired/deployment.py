"""The engines' Deployment."""

import math
from collections.abc import Sequence
from typing import Any

from paternoster_contract import labels
from paternoster_contract.http import paths
from paternoster_operator.api.pod.owned import (
    GPU_CLAIM,
    SHARED_MEMORY_FOLDER,
    SHARED_MEMORY_VOLUME,
    TMP_FOLDER,
    TMP_VOLUME,
)
from paternoster_operator.api.types.fields import Document
from paternoster_operator.api.types.scheduling import TopologySpread
from paternoster_operator.api.v1alpha1 import LLMDeployment, LLMDeploymentSpec
from paternoster_operator.desired.engine_args import ALONE, Installation, engine_args
from paternoster_operator.desired.foreign_engine import (
    engine_annotations,
    foreign_container,
    is_foreign,
    plugin_containers,
    plugin_mounts,
    plugin_volumes,
)
from paternoster_operator.desired.model_source import (
    engine_env,
    fetch_containers,
    model_mounts,
    model_volumes,
    pull_secrets,
)
from paternoster_operator.desired.ownership import child_metadata, pod_selector
from paternoster_operator.desired.pod_template import brings_shared_memory, with_template
from paternoster_operator.desired.resources import (
    build_resources,
    count_gpus,
    scratch_volume,
    shared_memory_volume,
    startup_timeout,
)
from paternoster_operator.desired.rollout import Strategy, choose_strategy
from paternoster_operator.desired.secret import key_mounts, key_volumes
from paternoster_operator.engines.kinds import KINDS
from paternoster_operator.observed import Observed

PRE_STOP_SECONDS = 2
"""Time for the gateway to hear that a pod is going before its engine stops admitting."""
GRACE_SECONDS = 15
"""Beyond the drain timeout, for the process to end."""


def build_deployment(
    resource: LLMDeployment, replicas: int, installation: Installation = ALONE, strategy: Strategy | None = None
) -> dict[str, Any]:
    """The Deployment with ``replicas`` engines, rolled out by ``strategy``, or as the manifest says without one.

    The live cap is not in it: a changed template would restart every pod. It goes through the engines' admin API.
    """
    spec = resource.spec
    strategy = strategy or choose_strategy(spec, replicas, Observed(None, ()))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child_metadata(resource),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": pod_selector(resource)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    "maxSurge": strategy.max_surge,
                    "maxUnavailable": strategy.max_unavailable,
                },
            },
            "minReadySeconds": spec.rollout.min_ready_seconds,
            "progressDeadlineSeconds": spec.rollout.progress_deadline_seconds or startup_timeout(spec),
            "template": with_template(
                {
                    "metadata": {"labels": pod_selector(resource), **engine_annotations(resource.spec)},
                    "spec": _pod_spec(resource, installation),
                },
                spec.pod_template,
            ),
        },
    }


def pre_stop_seconds(spec: LLMDeploymentSpec) -> int:
    """Time from the deletion of a pod to SIGTERM; running requests have to end in it where SIGTERM ends them."""
    finishes = KINDS[spec.engine.runtime.type].finishes_requests
    return PRE_STOP_SECONDS if finishes else PRE_STOP_SECONDS + spec.drain.timeout_seconds


def _pod_spec(resource: LLMDeployment, installation: Installation) -> dict[str, Any]:
    spec = resource.spec
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.drain.timeout_seconds + PRE_STOP_SECONDS + GRACE_SECONDS,
        "securityContext": dict(installation.security_context),
        "initContainers": [
            *fetch_containers(spec, installation.fetch_image, _security_context()),
            *plugin_containers(spec, installation.fetch_image, _security_context()),
        ],
        "containers": [_build_container(resource, installation)],
        "volumes": [
            {"name": TMP_VOLUME, "emptyDir": scratch_volume(spec)},
            *key_volumes(resource, behind_gateway=installation.behind_gateway),
            *model_volumes(spec),
            *plugin_volumes(spec),
            *_shared_memory(spec, {"name": SHARED_MEMORY_VOLUME, "emptyDir": shared_memory_volume()}),
        ],
        "topologySpreadConstraints": spread_constraints(resource),
        "nodeSelector": dict(spec.node_selector),
        "tolerations": _dump_parts(spec.tolerations),
        "priorityClassName": spec.priority_class_name,
        "runtimeClassName": spec.runtime_class_name,
        "serviceAccountName": spec.service_account_name,
        "imagePullSecrets": pull_secrets(spec, installation.pull_secrets),
    }
    if spec.resources.gpu.claim_template_name is not None:
        pod["resourceClaims"] = [
            {"name": GPU_CLAIM, "resourceClaimTemplateName": spec.resources.gpu.claim_template_name}
        ]
    return {name: value for name, value in pod.items() if value not in (None, {}, [])}


def spread_constraints(resource: LLMDeployment) -> list[dict[str, Any]]:
    """As the resource says; else over nodes, where possible."""
    constraints = resource.spec.topology_spread_constraints or [TopologySpread(topology_key="kubernetes.io/hostname")]
    return [
        {**document, "labelSelector": {"matchLabels": pod_selector(resource)}} for document in _dump_parts(constraints)
    ]


def _dump_parts(parts: Sequence[Document]) -> list[dict[str, Any]]:
    return [part.model_dump(by_alias=True, exclude_none=True) for part in parts]


def _build_container(resource: LLMDeployment, installation: Installation) -> dict[str, Any]:
    spec = resource.spec
    foreign = is_foreign(spec)
    health = KINDS[spec.engine.runtime.type].health_path
    ready = health if foreign else paths.READY
    process = foreign_container(resource, installation) if foreign else _own_process(resource, installation)
    container = {
        "name": labels.ENGINE_CONTAINER,
        **process,
        "startupProbe": _build_probe(ready, period=2, failures=math.ceil(startup_timeout(spec) / 2)),
        "readinessProbe": _build_probe(ready, period=2, failures=2),
        "livenessProbe": _build_probe(health, period=10, failures=6),
        # The last lines of a failed engine's log: the operator reports them.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "lifecycle": {"preStop": {"sleep": {"seconds": pre_stop_seconds(spec)}}},
        "resources": build_resources(spec),
        "securityContext": _security_context(),
        "volumeMounts": [
            {"name": TMP_VOLUME, "mountPath": TMP_FOLDER},
            *key_mounts(resource, behind_gateway=installation.behind_gateway),
            *model_mounts(spec),
            *plugin_mounts(spec),
            *_shared_memory(spec, {"name": SHARED_MEMORY_VOLUME, "mountPath": SHARED_MEMORY_FOLDER}),
        ],
    }
    return {name: value for name, value in container.items() if value != []}


def _own_process(resource: LLMDeployment, installation: Installation) -> dict[str, Any]:
    """Image, command and ports of our own engine."""
    return {
        "image": _engine_image(resource.spec, installation),
        "imagePullPolicy": resource.spec.engine.image_pull_policy.value,
        "command": ["paternoster", "serve"],
        "args": engine_args(resource, installation).to_flags(),
        "env": engine_env(resource.spec),
        "ports": [
            {"name": labels.ENGINE_PORT_NAME, "containerPort": labels.ENGINE_PORT, "protocol": "TCP"},
            {"name": labels.ADMIN_PORT_NAME, "containerPort": labels.ADMIN_PORT, "protocol": "TCP"},
        ],
    }


def _security_context() -> dict[str, Any]:
    """Of every container that the operator adds."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def _engine_image(spec: LLMDeploymentSpec, installation: Installation) -> str:
    return spec.engine.image or installation.engine_image


def _shared_memory(spec: LLMDeploymentSpec, part: dict[str, Any]) -> list[dict[str, Any]]:
    """``part`` where processes of an engine need it and the template brings none.

    Those are the ranks of several GPUs, and whatever processes another engine has: vLLM's API server and worker do not
    start with the 64 MiB of container runtimes.
    """
    needed = count_gpus(spec) > 1 or is_foreign(spec)
    return [part] if needed and not brings_shared_memory(spec.pod_template) else []


def _build_probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": labels.ENGINE_PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
