"""The record of served names in a ConfigMap of the operator's namespace, which nothing else has to write."""

import logging
from collections.abc import Mapping

from paternoster_contract import routing_copy
from paternoster_contract.routing import ModelRoute
from paternoster_contract.routing_copy import RoutingCopy
from paternoster_operator.cluster.kubernetes import KubernetesCluster
from paternoster_operator.cluster.port import ClusterError, Key

log = logging.getLogger(__name__)


class ConfigMapRecord:
    """Implements :class:`~paternoster_operator.names.record_store.RecordObject`."""

    def __init__(self, cluster: KubernetesCluster, config_map: Key, routes_secret: Key | None) -> None:
        """``routes_secret``: where the copy of the routing table is, if there is one."""
        self._cluster = cluster
        self._config_map = config_map
        self._routes_secret = routes_secret

    async def read(self) -> tuple[Mapping[str, str], str] | None:
        return await self._cluster.read_config_map(self._config_map)

    async def write(self, data: Mapping[str, str], version: str | None) -> str | None:
        return await self._cluster.write_config_map(self._config_map, data, version)

    async def read_published_routes(self) -> Mapping[str, ModelRoute]:
        """From the copy of the routing table, which is the operator's own, too; none where it cannot be used."""
        if self._routes_secret is None:
            return {}
        try:
            packed = await self._cluster.read_secret_field(self._routes_secret, routing_copy.FIELD)
            return {} if packed is None else RoutingCopy.unpack(packed).table.models
        except (ClusterError, ValueError) as error:
            if isinstance(error, ClusterError) and error.retriable:
                raise
            log.warning("nothing is known of the routes that were published before: %s", error)
            return {}
