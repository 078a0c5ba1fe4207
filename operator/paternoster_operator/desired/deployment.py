"""The engines' Deployment."""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from paternoster_contract import labels
from paternoster_contract.http import paths
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.api.pod.owned import GPU_CLAIM
from paternoster_operator.api.types.engine import Engine
from paternoster_operator.api.types.fields import Document
from paternoster_operator.api.types.scheduling import TopologySpread
from paternoster_operator.api.v1alpha1 import LLMDeployment, LLMDeploymentSpec
from paternoster_operator.desired.engine_args import ALONE, Installation, engine_args
from paternoster_operator.desired.foreign_engine import foreign_annotations, foreign_process, plugin_parts
from paternoster_operator.desired.model_source import engine_env, model_parts, pull_secrets
from paternoster_operator.desired.ownership import ChildNames
from paternoster_operator.desired.pod_parts import CONTAINER_SECURITY, PodParts
from paternoster_operator.desired.pod_template import with_template
from paternoster_operator.desired.resources import (
    build_fetch_resources,
    build_resources,
    scratch_parts,
    shared_memory_parts,
    startup_timeout,
)
from paternoster_operator.desired.rollout import Strategy, choose_strategy
from paternoster_operator.desired.secret import key_parts
from paternoster_operator.engines.kinds import KINDS
from paternoster_operator.observed import Observed

PRE_STOP_SECONDS = 2
"""Time for the gateway to hear that a pod is going before its engine stops admitting."""
GRACE_SECONDS = 15
"""Beyond the drain timeout, for the process to end."""


def build_deployment(
    resource: LLMDeployment,
    names: ChildNames,
    replicas: int,
    installation: Installation = ALONE,
    strategy: Strategy | None = None,
) -> dict[str, Any]:
    """The Deployment with ``replicas`` engines, rolled out by ``strategy``, or as the manifest says without one.

    The live cap is not in it: a changed template would restart every pod. It goes through the engines' admin API.
    """
    spec, engine = resource.spec, resource.spec.engine
    strategy = strategy or choose_strategy(spec, replicas, Observed(None, ()))
    startup_seconds, resources = startup_timeout(spec), build_resources(spec)
    fetch_resources = build_fetch_resources(spec, resources) if spec.model.remote else {}
    scratch, shared_memory = scratch_parts(spec), shared_memory_parts(spec)
    keys = key_parts(spec.security, names, behind_gateway=installation.behind_gateway)
    settings = engine_args(resource, installation)
    model = model_parts(spec, installation.fetch_image, fetch_resources)
    secrets, env = pull_secrets(spec, installation.pull_secrets), engine_env(spec)
    metadata: dict[str, Any] = {"labels": names.selector}
    plugin = PodParts()
    if engine.runtime.is_foreign:
        metadata["annotations"] = foreign_annotations(engine.runtime, settings.model)
        plugin, process = plugin_parts(engine, installation.fetch_image), foreign_process(engine, settings)
    else:
        process = _own_process(engine, settings, installation, env)
    parts = (scratch, keys, model, plugin, shared_memory)
    container = {
        "name": labels.ENGINE_CONTAINER,
        **process,
        **_follow_life(spec, startup_seconds),
        "resources": resources,
        "securityContext": deepcopy(CONTAINER_SECURITY),
        "volumeMounts": [mount for part in parts for mount in part.mounts],
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.drain.timeout_seconds + PRE_STOP_SECONDS + GRACE_SECONDS,
        "securityContext": dict(installation.security_context),
        "initContainers": [init for part in parts for init in part.init_containers],
        "containers": [{name: value for name, value in container.items() if value != []}],
        "volumes": [volume for part in parts for volume in part.volumes],
        **_place_pods(spec, names),
        "imagePullSecrets": secrets,
        "resourceClaims": _claim_gpus(spec),
    }
    set_fields = {name: value for name, value in pod.items() if value not in (None, {}, [])}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": names.metadata,
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": names.selector},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    "maxSurge": strategy.max_surge,
                    "maxUnavailable": strategy.max_unavailable,
                },
            },
            "minReadySeconds": spec.rollout.min_ready_seconds,
            "progressDeadlineSeconds": spec.rollout.progress_deadline_seconds or startup_seconds,
            "template": with_template({"metadata": metadata, "spec": set_fields}, spec.pod_template),
        },
    }


def _own_process(
    engine: Engine, settings: EngineArgs, installation: Installation, env: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Image, command and ports of our own engine."""
    return {
        "image": engine.image or installation.engine_image,
        "imagePullPolicy": engine.image_pull_policy.value,
        "command": ["paternoster", "serve"],
        "args": settings.to_flags(),
        "env": env,
        "ports": [
            {"name": labels.ENGINE_PORT_NAME, "containerPort": labels.ENGINE_PORT, "protocol": "TCP"},
            {"name": labels.ADMIN_PORT_NAME, "containerPort": labels.ADMIN_PORT, "protocol": "TCP"},
        ],
    }


def _follow_life(spec: LLMDeploymentSpec, startup_seconds: int) -> dict[str, Any]:
    """Fields by which a kubelet follows the engine from its start to its end."""
    kind = KINDS[spec.engine.runtime.type]
    ready = kind.health_path if spec.engine.runtime.is_foreign else paths.READY
    # Running requests have to end before SIGTERM where that ends them.
    stop_seconds = PRE_STOP_SECONDS + (0 if kind.finishes_requests else spec.drain.timeout_seconds)
    return {
        "startupProbe": _build_probe(ready, period=2, failures=math.ceil(startup_seconds / 2)),
        "readinessProbe": _build_probe(ready, period=2, failures=2),
        "livenessProbe": _build_probe(kind.health_path, period=10, failures=6),
        # The last lines of a failed engine's log: the operator reports them.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "lifecycle": {"preStop": {"sleep": {"seconds": stop_seconds}}},
    }


def _build_probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": labels.ENGINE_PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _place_pods(spec: LLMDeploymentSpec, names: ChildNames) -> dict[str, Any]:
    """Placement and identity of pods; they are spread as the resource has it, else over nodes, where possible."""
    constraints = spec.topology_spread_constraints or [TopologySpread(topology_key="kubernetes.io/hostname")]
    return {
        "topologySpreadConstraints": [
            {**document, "labelSelector": {"matchLabels": names.selector}} for document in _dump_parts(constraints)
        ],
        "nodeSelector": dict(spec.node_selector),
        "tolerations": _dump_parts(spec.tolerations),
        "priorityClassName": spec.priority_class_name,
        "runtimeClassName": spec.runtime_class_name,
        "serviceAccountName": spec.service_account_name,
    }


def _dump_parts(parts: Sequence[Document]) -> list[dict[str, Any]]:
    return [part.model_dump(by_alias=True, exclude_none=True) for part in parts]


def _claim_gpus(spec: LLMDeploymentSpec) -> list[dict[str, Any]]:
    claim = spec.resources.gpu.claim_template_name
    return [] if claim is None else [{"name": GPU_CLAIM, "resourceClaimTemplateName": claim}]
