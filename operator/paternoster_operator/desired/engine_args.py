"""What a manifest says of its engines, as their start-up settings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from pydantic.alias_generators import to_snake

from paternoster_contract import labels
from paternoster_contract.quantity import parse_quantity
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.settings.row import list_rows
from paternoster_contract.settings.scheduling import OrderName
from paternoster_operator.api.v1alpha1 import LLMDeployment, LLMDeploymentSpec
from paternoster_operator.desired.model_source import engine_source
from paternoster_operator.desired.secret import ADMIN, API, KEY_FOLDERS
from paternoster_operator.engines.adapter import RuntimeType

SECURITY_CONTEXT: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "fsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Security context of a pod, where the installation has no other."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What the engines of all fleets have in common."""

    engine_image: str = labels.DEFAULT_ENGINE_IMAGE
    """Where the resource names none."""
    fetch_image: str = labels.DEFAULT_FETCH_IMAGE
    """Image of the init container that fetches a model."""
    behind_gateway: bool = False
    """Engines answer only to the gateway's key."""
    vllm_metrics: bool = False
    """They export their core metrics under vLLM's names, too."""
    ipv6: bool = False
    """Pods have IPv6 addresses first."""
    security_context: Mapping[str, Any] = field(default_factory=lambda: dict(SECURITY_CONTEXT))
    """Security context of every pod."""
    pull_secrets: tuple[str, ...] = ()
    """Secrets, of each fleet's namespace, that nodes pull images with, besides those that the resource names."""


ALONE = Installation()
"""Nothing but what the resource says."""


def engine_args(resource: LLMDeployment, installation: Installation = ALONE) -> EngineArgs:
    """The settings of each engine. Live cap and token budget are not in them: they go through the admin API."""
    spec = resource.spec
    keyed, devices = installation.behind_gateway or spec.security.has_client_keys, spec.resources.num_gpus
    args = EngineArgs(
        **{
            "served_model_name": resource.served_names,
            "host": _listening_host(spec, installation),
            "port": labels.ENGINE_PORT,
            "admin_port": labels.ADMIN_PORT,
            "api_keys": KEY_FOLDERS[API] if keyed else None,
            "admin_keys": KEY_FOLDERS[ADMIN],
            # Its API has the gateway's key alone then, so that no other client can claim an identity.
            "identity_header": installation.behind_gateway,
            # A pod that waited for a GPU and does not see it must say so, and not serve from its CPUs.
            "device": "cuda" if devices else "auto",
            "threads": _count_threads(spec),
            "tensor_parallel_size": max(1, devices),
            "order": _default_order(spec),
            "drain_timeout": spec.drain.timeout_seconds,
            "vllm_metrics": installation.vllm_metrics,
            "tenant_weights": {weight.name: weight.percent / 100 for weight in spec.engine.tenants.weights},
            **_read_settings(spec),
            "model": engine_source(spec),
        }
    )
    return args.replace(**spec.engine.extra_settings()) if spec.engine.extra_args else args


def _listening_host(spec: LLMDeploymentSpec, installation: Installation) -> str:
    """Every address of both families; of the pod's own where the engine is not ours, as for some ``::`` is IPv6 alone.

    Empty and not ``::``, which engines of 0.2.0, that a manifest may pin, take for IPv6 alone.
    """
    if spec.engine.runtime.type is RuntimeType.PATERNOSTER:
        return ""
    return "::" if installation.ipv6 else "0.0.0.0"


_FIELDS = [
    (row.name, attrgetter(".".join(map(to_snake, row.field.path.split(".")))), row.field.to_setting)
    for row in list_rows(EngineArgs)
    if row.field is not None and row.field.path and not row.field.by_hand
]
"""The reader of each setting's field of spec, and the function that makes the setting of it."""


def _read_settings(spec: LLMDeploymentSpec) -> dict[str, Any]:
    """Settings that one field sets; none of those whose field is unset."""
    read = ((name, read_field(spec), to_setting) for name, read_field, to_setting in _FIELDS)
    return {name: to_setting(value) for name, value, to_setting in read if value is not None}


def _default_order(spec: LLMDeploymentSpec) -> OrderName | None:
    """Tenants share fairly where keys name them; engines of other types have no tenants, and no such order."""
    ours = spec.engine.runtime.type is RuntimeType.PATERNOSTER
    return "fair-share" if spec.security.api_keys and ours else None


def _count_threads(spec: LLMDeploymentSpec) -> int | None:
    cpu = spec.resources.limits.get("cpu")
    return None if cpu is None else max(1, math.ceil(parse_quantity(cpu)))
