"""The Secret of keys that the engines ask of those who call them."""

import base64
from collections.abc import Sequence
from typing import Any

from paternoster_contract.access import keys
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.ownership import child_metadata

SUFFIX = "-keys"
GATEWAY_FIELD = "gateway"
ADMIN_FIELD = "admin"


def build_secret(resource: LLMDeployment, gateway_roots: Sequence[str], admin_roots: Sequence[str]) -> dict[str, Any]:
    """A key for each root: while one root takes another's place, engines accept those of both."""
    uid = resource.metadata.uid
    fields = {ADMIN_FIELD: [keys.derive_key(root, keys.OPERATOR_TO_ENGINE, uid) for root in admin_roots]}
    if gateway_roots:
        fields[GATEWAY_FIELD] = [keys.derive_key(root, keys.GATEWAY_TO_ENGINE, uid) for root in gateway_roots]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": child_metadata(resource, SUFFIX),
        "type": "Opaque",
        "data": {name: base64.b64encode("\n".join(lines).encode()).decode() for name, lines in fields.items()},
    }
