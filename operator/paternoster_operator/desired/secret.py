"""The Secret of keys that the engines ask of those who call them, and the folders in which containers find them.

These change with their Secrets.
"""

import base64
from collections.abc import Sequence
from typing import Any

from paternoster_contract import labels
from paternoster_contract.access import keys
from paternoster_operator.api.v1alpha1 import SecretKey, Security
from paternoster_operator.desired.ownership import ChildNames
from paternoster_operator.desired.pod_parts import PodParts

SUFFIX = "-keys"
GATEWAY_FIELD = "gateway"
ADMIN_FIELD = "admin"
API = "api"
ADMIN = "admin"
KEY_FOLDERS = {purpose: f"{labels.KEYS_FOLDER}/{purpose}" for purpose in (API, ADMIN)}
"""Paths at which an engine has the keys for a purpose."""
READABLE_BY_GROUP = 0o440


def build_secret(names: ChildNames, gateway_roots: Sequence[str], admin_roots: Sequence[str]) -> dict[str, Any]:
    """A key for each root: while one root takes another's place, engines accept those of both."""
    uid = names.uid
    fields = {ADMIN_FIELD: [keys.derive_key(root, keys.OPERATOR_TO_ENGINE, uid) for root in admin_roots]}
    if gateway_roots:
        fields[GATEWAY_FIELD] = [keys.derive_key(root, keys.GATEWAY_TO_ENGINE, uid) for root in gateway_roots]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**names.metadata, "name": names.name + SUFFIX},
        "type": "Opaque",
        "data": {name: base64.b64encode("\n".join(lines).encode()).decode() for name, lines in fields.items()},
    }


def key_sources(security: Security, names: ChildNames, *, behind_gateway: bool) -> dict[str, list[dict[str, Any]]]:
    """Sources of a projected volume by purpose; the API has none where any client may call it.

    Behind a gateway clients' keys open the gateway alone. Without one no program could check hashed keys: the volume is
    empty then, and the API closed, unless plain keys open it.
    """
    own = SecretKey(name=names.name + SUFFIX, key=ADMIN_FIELD)
    api = [_volume_source(SecretKey(name=own.name, key=GATEWAY_FIELD), "gateway")] if behind_gateway else []
    if security.api_key_secret_ref is not None and not behind_gateway:
        api.append(_volume_source(security.api_key_secret_ref, "clients"))
    sources = {ADMIN: [_volume_source(security.admin_key_secret_ref or own, "operator")]}
    return {API: api, **sources} if behind_gateway or security.has_client_keys else sources


def key_parts(security: Security, names: ChildNames, *, behind_gateway: bool) -> PodParts:
    """The volumes of keys, and where the engine has them."""
    sources = key_sources(security, names, behind_gateway=behind_gateway)
    return PodParts(
        volumes=[
            {"name": f"{purpose}-keys", "projected": {"defaultMode": READABLE_BY_GROUP, "sources": secrets}}
            for purpose, secrets in sources.items()
        ],
        mounts=[
            {"name": f"{purpose}-keys", "mountPath": KEY_FOLDERS[purpose], "readOnly": True} for purpose in sources
        ],
    )


def _volume_source(secret: SecretKey, file: str) -> dict[str, Any]:
    return {"secret": {"name": secret.name, "items": [{"key": secret.key, "path": file}]}}
