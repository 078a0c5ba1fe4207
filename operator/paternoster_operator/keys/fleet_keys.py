"""Which keys each hop to a fleet has: made from the installation's roots, or the user's own."""

from collections.abc import Sequence
from dataclasses import replace

from paternoster_contract.access import keys
from paternoster_contract.access.identity import Identity
from paternoster_operator.api.v1alpha1 import LLMDeployment, SecretKey
from paternoster_operator.cluster.port import ClusterError, Key
from paternoster_operator.desired.children import RootKeys
from paternoster_operator.keys.client_keys import MAX_KEYS, ClientKeys
from paternoster_operator.keys.key_secrets import KeySecrets
from paternoster_operator.observed import ObservedKeys
from paternoster_operator.settings import Settings


class UnusableKeys(ClusterError):
    """The keys that a manifest names in a Secret are not there, or are too many."""

    reason = "ConfigurationMissing"

    def __init__(self, namespace: str, field: str, secret: SecretKey, count: int) -> None:
        fault = f"has more keys there than the {MAX_KEYS} that a fleet may have" if count else "has no such key"
        super().__init__(
            f"{field} names Secret {secret.name}, key {secret.key}: namespace {namespace} {fault}", retriable=False
        )


class BadKeyList(ClusterError):
    """Entries of a list of hashed keys are not valid; the others are."""

    reason = "ConfigurationInvalid"

    def __init__(self, field: str, secret: SecretKey, faults: Sequence[str]) -> None:
        super().__init__(f"{field}, Secret {secret.name}, key {secret.key}: {'; '.join(faults)}", retriable=False)


class FleetKeys:
    """Every method but :meth:`observe` raises :class:`ClusterError` where a Secret cannot be read."""

    def __init__(self, secrets: KeySecrets, settings: Settings) -> None:
        self._secrets = secrets
        self._settings = settings

    async def observe(self, resource: LLMDeployment, admin: Sequence[str]) -> ObservedKeys:
        """The keys of the fleet's hops, and the faults of such as cannot be read; ``admin`` are those read last."""
        found = ObservedKeys(admin=admin)
        try:
            roots = await self.read_roots()
            found = replace(found, admin_roots=roots.admin, gateway_roots=roots.gateway)
            found = replace(found, admin=await self.admin_keys(resource, roots))
        except ClusterError as error:
            return replace(found, fault=error)
        try:
            clients = await self.client_keys(resource)
        except ClusterError as error:
            return replace(found, client_fault=error)
        return replace(found, client_fault=clients.fault)

    async def read_roots(self) -> RootKeys:
        """What the keys of all fleets are derived from; made where there are none."""
        return RootKeys(
            admin=await self._secrets.read_root(self._settings.admin_key), gateway=await self._gateway_roots()
        )

    async def admin_keys(self, resource: LLMDeployment, roots: RootKeys) -> Sequence[str]:
        """Keys of the engines' admin API, to try in order; raises :class:`UnusableKeys`."""
        own = resource.spec.security.admin_key_secret_ref
        if own is None:
            return [keys.derive_key(root, keys.OPERATOR_TO_ENGINE, resource.metadata.uid) for root in roots.admin]
        return await self._of_user(resource, "spec.security.adminKeySecretRef", own)

    async def gateway_keys(self, resource: LLMDeployment) -> Sequence[str]:
        """What gateways send the fleet's engines, to try in order; none without a gateway."""
        roots = await self._gateway_roots()
        return [keys.derive_key(root, keys.GATEWAY_TO_ENGINE, resource.metadata.uid) for root in roots]

    async def client_keys(self, resource: LLMDeployment) -> ClientKeys:
        """Who may send requests; no client where the manifest names keys and none can be read."""
        security = resource.spec.security
        if security.api_key_secret_ref is None and not security.api_keys:
            return ClientKeys(None)
        faults: list[ClusterError] = []
        digests: dict[str, None] = {}
        identities: dict[str, Identity] = {}
        if security.api_key_secret_ref is not None:
            try:
                own = await self._of_user(resource, "spec.security.apiKeySecretRef", security.api_key_secret_ref)
                digests |= dict.fromkeys(keys.digest_key(key) for key in own)
            except ClusterError as error:
                if error.retriable:
                    raise
                faults.append(error)
        for index, secret in enumerate(security.api_keys):
            where = f"spec.security.apiKeys[{index}]"
            try:
                found = await self._secrets.key_list(Key(resource.metadata.namespace, secret.name), secret.key)
                if found is None:
                    raise UnusableKeys(resource.metadata.namespace, where, secret, 0)
            except ClusterError as error:
                if error.retriable:
                    raise
                faults.append(error)
                continue
            if len(digests | dict.fromkeys(found.identities)) > MAX_KEYS:
                faults.append(BadKeyList(where, secret, [f"with it the fleet has more than {MAX_KEYS} keys"]))
                continue
            if found.faults:
                faults.append(BadKeyList(where, secret, found.faults))
            digests |= dict.fromkeys(found.identities)
            identities = {**found.identities, **identities}
        return ClientKeys(list(digests), identities, faults[0] if faults else None)

    async def routes_digests(self) -> list[str] | None:
        """Digests of the keys by which gateways may read the routing table, None without gateways."""
        roots = await self._gateway_roots()
        return [keys.digest_key(keys.derive_key(root, keys.GATEWAY_TO_OPERATOR)) for root in roots] if roots else None

    async def operator_key(self) -> str | None:
        """The key by which another shard's operator may read this one's rows; None without gateways."""
        roots = await self._gateway_roots()
        return keys.derive_key(roots[0], keys.GATEWAY_TO_OPERATOR) if roots else None

    async def _gateway_roots(self) -> Sequence[str]:
        return () if self._settings.gateway_url is None else await self._secrets.read_root(self._settings.gateway_key)

    async def _of_user(self, resource: LLMDeployment, field: str, secret: SecretKey) -> Sequence[str]:
        namespace = resource.metadata.namespace
        found = await self._secrets.read_keys(Key(namespace, secret.name), secret.key)
        if not found or len(found) > MAX_KEYS:
            raise UnusableKeys(namespace, field, secret, len(found or ()))
        return found
