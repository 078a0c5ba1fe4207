"""The routing table's entry for one LLMDeployment. Pure."""

from paternoster_contract.routing import ModelRoute
from paternoster_operator.api.autoscaling_types import ColdRequestPolicy
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.keys.fleet_keys import ClientKeys

SOONEST_RETRY_SECONDS = 5
OPEN = ClientKeys(None)
"""A fleet that asks for no key."""


def build_route(resource: LLMDeployment, clients: ClientKeys = OPEN) -> ModelRoute:
    """What the gateway does with requests; replicas are added by the caller."""
    admission, auto = resource.spec.admission, resource.spec.autoscaling
    uid = resource.metadata.uid
    if auto is None or not auto.scale_to_zero.enabled:
        return ModelRoute(
            fleet=uid,
            key_digests=clients.digests,
            identities=dict(clients.identities),
            max_held=admission.max_held_requests,
            hold_timeout_seconds=admission.hold_timeout_seconds,
        )
    to_zero = auto.scale_to_zero
    learnt = resource.status.get("startup", {}).get("averageSeconds", 0)
    return ModelRoute(
        fleet=uid,
        key_digests=clients.digests,
        identities=dict(clients.identities),
        max_held=admission.max_held_requests,
        hold_timeout_seconds=to_zero.activation_timeout_seconds,
        hold=to_zero.cold_request_policy is ColdRequestPolicy.HOLD,
        retry_after_seconds=min(max(learnt, SOONEST_RETRY_SECONDS), to_zero.activation_timeout_seconds),
    )
