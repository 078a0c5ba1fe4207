"""The routing table's entry for one LLMDeployment. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from paternoster_contract.access.identity import Identity
from paternoster_contract.routing import AdapterRoute, ModelRoute
from paternoster_operator.api.types.adapter import ModelAdapter
from paternoster_operator.api.types.autoscaling import ColdRequestPolicy
from paternoster_operator.api.v1alpha1 import DrainMode, LLMDeployment
from paternoster_operator.engines.kinds import KINDS
from paternoster_operator.report.default_parameters import read_default_parameters
from paternoster_operator.report.gateway_cap import GatewayCap

SOONEST_RETRY_SECONDS = 5
NO_IDENTITIES: Mapping[str, Identity] = MappingProxyType({})


def build_route(
    resource: LLMDeployment,
    key_digests: list[str] | None = None,
    identities: Mapping[str, Identity] = NO_IDENTITIES,
    aliases: Sequence[str] = (),
    adapters: Sequence[ModelAdapter] = (),
) -> ModelRoute:
    """Build what the gateway does with requests; replicas are added by the caller.

    All of it is in the object, so that every replica of the operator publishes the same.
    """
    longest = resource.status.get("maxModelLen") or resource.spec.engine.max_model_len
    admission, auto = resource.spec.admission, resource.spec.autoscaling
    uid, created = resource.metadata.uid, _unix_seconds(resource.metadata.creation_timestamp)
    route = ModelRoute(
        fleet=uid,
        namespace=resource.metadata.namespace,
        aliases=list(aliases),
        adapters=[AdapterRoute(name=each.name, key_digests=_find_digests(each, identities)) for each in adapters],
        key_digests=key_digests,
        identities=dict(identities),
        max_model_len=longest,
        default_parameters=read_default_parameters(resource.status),
        created=created,
        max_held=admission.max_held_requests,
        hold_timeout_seconds=admission.hold_timeout_seconds,
        health_path=KINDS[resource.spec.engine.runtime.type].health_path,
        hand_over=resource.spec.drain.mode is DrainMode.HAND_OVER,
    )
    cap = GatewayCap.from_status(resource.status)
    if cap is not None:
        route.max_in_flight, route.in_flight_parts = cap.max_in_flight, dict(cap.parts)
        route.spare_in_flight = cap.count_spare(resource.spec.engine.max_num_seqs)
    if auto is not None and auto.scale_to_zero.enabled:
        to_zero = auto.scale_to_zero
        learnt = resource.status.get("startup", {}).get("averageSeconds", 0)
        route.hold_timeout_seconds = to_zero.activation_timeout_seconds
        route.hold = to_zero.cold_request_policy is ColdRequestPolicy.HOLD
        route.retry_after_seconds = min(max(learnt, SOONEST_RETRY_SECONDS), to_zero.activation_timeout_seconds)
    return route


def _find_digests(adapter: ModelAdapter, identities: Mapping[str, Identity]) -> list[str] | None:
    """Digests of the keys that may use it; None for all."""
    if adapter.keys is None:
        return None
    return [digest for digest, identity in identities.items() if identity.tenant in adapter.keys]


def _unix_seconds(timestamp: str | None) -> int | None:
    """Read a time as Kubernetes writes it (RFC 3339); None where it is none."""
    try:
        return int(datetime.fromisoformat(timestamp or "").timestamp())
    except ValueError:
        return None
