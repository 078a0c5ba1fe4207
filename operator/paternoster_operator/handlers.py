"""Everything kopf: watches feed indices and the queue, and nothing else happens here.

Only ``on.event`` and ``index``: no finalizers, no annotations, no timers. An LLMDeployment can be deleted while the
operator is away, and nothing on it differs from what was applied. All are coroutines: kopf would give each event of a
plain function to a thread.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import kopf

from paternoster_contract import labels, routing_copy
from paternoster_contract.supervise import supervise_task
from paternoster_operator.cluster.buckets import Shard
from paternoster_operator.cluster.kopf_watches import configure_watches, install_watches, log_in
from paternoster_operator.cluster.kubernetes import KubernetesCluster
from paternoster_operator.cluster.lease import Leadership, shard_lease
from paternoster_operator.cluster.port import Key
from paternoster_operator.cluster.traffic import ApiTraffic
from paternoster_operator.cluster.watch_states import EVERY_NAMESPACE, Watch, WatchStates
from paternoster_operator.names.config_map import ConfigMapRecord
from paternoster_operator.publish import build_app, serve_app
from paternoster_operator.routes.copy_secret import RoutesSecret
from paternoster_operator.routes.published import PublishedTable
from paternoster_operator.runtime import Operator
from paternoster_operator.shards.labelling import BucketLabels
from paternoster_operator.shards.ownership import FleetOwnership

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Between two polls of what no watch reports."""
LONGEST_EXIT_SECONDS = 60.0
"""From SIGTERM until the process ends, whatever it waits for."""
CHILD_SELECTOR = {
    "matchLabels": {labels.MANAGED_BY: labels.MANAGER, labels.COMPONENT: labels.ENGINE_COMPONENT},
    "matchExpressions": [{"key": labels.INSTANCE, "operator": "Exists"}],
}
"""Selector of the objects of the children's kinds that the API server sends.

kopf's own ``labels=`` drops the others once they are here. A child that loses a label comes as deleted, which has its
fleet applied again.
"""
RESOURCE = (labels.GROUP, labels.VERSION, labels.PLURAL)
REPLICA_SETS = ("apps", "v1", "replicasets")
PODS = ("", "v1", "pods")
CHILDREN = {
    "Deployment": ("apps", "v1", "deployments"),
    "Service": ("", "v1", "services"),
    "PodDisruptionBudget": ("policy", "v1", "poddisruptionbudgets"),
}
"""The children of every fleet. Secrets are not among them: watching some needs the right to list them all."""
NETWORK_POLICIES = ("networking.k8s.io", "v1", "networkpolicies")
"""Watched by :func:`watch_network_policies` alone: without them the operator has no right to list them."""
SELECTED = (REPLICA_SETS, PODS, *CHILDREN.values(), NETWORK_POLICIES)
"""Kinds of which other owners have objects, too."""
WATCHED = {labels.KIND: RESOURCE, "ReplicaSet": REPLICA_SETS, "Pod": PODS, **CHILDREN}


@dataclass(frozen=True)
class Indices:
    """kopf's indices as the cluster's cache; kopf fills them before the first handler runs."""

    resources: Any
    children: Mapping[str, Any]
    replica_sets: Any
    pods: Any


class NothingHandled(kopf.DiffBaseStorage):
    """kopf compares each object with a copy of what was handled last: no handler here asks what differs."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


@kopf.index(*RESOURCE)
async def resource_index(namespace: str, name: str, body: kopf.Body, **_: Any) -> Any:
    return {(namespace, name): dict(body)}


@kopf.index(*CHILDREN["Deployment"], id="Deployment")
@kopf.index(*CHILDREN["Service"], id="Service")
@kopf.index(*CHILDREN["PodDisruptionBudget"], id="PodDisruptionBudget")
@kopf.index(*PODS, id="Pod")
async def object_index(namespace: str, labels: Any, body: kopf.Body, **_: Any) -> Any:
    return {index_owner(namespace, labels): dict(body)}


@kopf.index(*REPLICA_SETS, id="ReplicaSet")
async def replica_set_index(namespace: str, labels: Any, meta: kopf.Meta, **_: Any) -> Any:
    # Whose it is, and nothing else: an old one has a whole pod template.
    metadata = {each: meta.get(each) for each in ("name", "uid", "labels", "ownerReferences")}
    return {index_owner(namespace, labels): {"metadata": metadata}}


@kopf.on.event(*RESOURCE)
async def resource_changed(namespace: str, name: str, meta: kopf.Meta, memo: Any, type: Any, **_: Any) -> None:
    memo.operator.synced = True  # kopf calls no handler before every index is whole
    observe_label(memo, Key(namespace, name), type, meta)
    if type == "DELETED" or "deletionTimestamp" in meta:
        memo.operator.enqueue_key(Key(namespace, name))
        memo.operator.enqueue_unnamed(namespace)
    else:
        memo.operator.enqueue_if_edited(Key(namespace, name), meta["generation"])


@kopf.on.event(*CHILDREN["Deployment"])
@kopf.on.event(*CHILDREN["Service"])
@kopf.on.event(*CHILDREN["PodDisruptionBudget"])
@kopf.on.event(*REPLICA_SETS)
@kopf.on.event(*PODS)
async def child_changed(namespace: str, labels: Any, meta: kopf.Meta, memo: Any, type: Any, **_: Any) -> None:
    key = Key(*index_owner(namespace, labels))
    observe_label(memo, key, type, meta)
    memo.operator.enqueue_soon(key)


def watch_network_policies(registry: kopf.OperatorRegistry) -> dict[str, tuple[str, str, str]]:
    """Have kopf watch the fleets' NetworkPolicies, too; returns all kinds that are watched then."""
    kopf.index(*NETWORK_POLICIES, id="NetworkPolicy", registry=registry)(object_index)
    kopf.on.event(*NETWORK_POLICIES, registry=registry)(child_changed)
    return {**WATCHED, "NetworkPolicy": NETWORK_POLICIES}


kopf.on.login()(log_in)


# Where it fails the process ends; kopf would wait a minute and call it again.
@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
async def start_operator(settings: kopf.OperatorSettings, memo: Any, resource_index: Any, **indices: Any) -> None:
    configure_kopf(settings, memo.shard)
    memo.leadership = memo.ownership = memo.bucket_labels = None
    memo.leading = []
    children = {kind: indices[kind] for kind in memo.watched.keys() - {labels.KIND, "ReplicaSet", "Pod"}}
    watches = WatchStates(lambda watch, works: observe_watch(memo.operator, watch, works))
    cache = Indices(resource_index, children, indices["ReplicaSet"], indices["Pod"])
    traffic = ApiTraffic()
    memo.cluster = KubernetesCluster(cache, watches, traffic, memo.shard)
    await memo.cluster.log_in()
    if memo.lease is not None:
        share_fleets(memo)
    record = name_record(memo.cluster, memo.name_record, memo.routes_secret)
    memo.operator = Operator(memo.cluster, memo.settings, record, traffic, memo.ownership, memo.shard_urls)
    memo.operator.synced = False
    memo.http, _port = await serve_app(build_app(memo.operator), memo.host, memo.port)
    memo.tasks = [
        supervise_task(memo.operator.make_root_keys, "make-root-keys"),
        supervise_task(memo.operator.follow_names, "follow-names"),
        supervise_task(memo.operator.measure_event_loop, "measure-event-loop"),
        supervise_task(memo.operator.shard_tables.follow, "follow-shards"),
    ]
    install_watches(watches, memo.watched.values(), traffic)
    memo.tasks.append(
        supervise_task(
            lambda: notice_emptiness(watches, memo.watched, memo.operator, memo.namespaces), "notice-emptiness"
        )
    )
    if memo.lease is None:
        lead_operators(memo)
        return

    async def begin_acting() -> None:
        lead_operators(memo)

    async def end_acting() -> None:
        await stop_leading(memo)
        await memo.operator.pause()

    lease = shard_lease(memo.lease, memo.shard.number)
    memo.leadership = Leadership(memo.cluster.api, lease, begin_acting, end_acting)
    memo.tasks.append(supervise_task(memo.leadership.run, "leadership"))


def share_fleets(memo: Any) -> None:
    """Act for the fleets of the buckets that this operator's shard has, and label them by their buckets."""
    memo.ownership = memo.cluster.ownership = FleetOwnership(
        memo.shard, memo.cluster, memo.lease, lambda: memo.leadership and memo.leadership.find_term(),
        gain=lambda buckets: memo.operator.enqueue_buckets(buckets), let_go=lambda buckets: let_go(memo, buckets),
    )  # fmt: skip
    if memo.shard.count > 1:
        memo.bucket_labels = BucketLabels(memo.cluster, memo.ownership.may_label, lambda key: is_ours(memo, key))


async def is_ours(memo: Any, key: Key) -> bool:
    """Whether no other installation reconciles the fleet; raises ``ClusterError``."""
    document = memo.cluster.get(key) or await memo.cluster.read_fleet(key)
    return document is None or memo.operator.find_other_owner(document) is None


async def let_go(memo: Any, buckets: Collection[int]) -> None:
    """Have the fleets of ``buckets`` seen by the shards that are to have them, once nothing is done for them here."""
    await memo.operator.stop_reconciling(buckets)
    if memo.bucket_labels is not None:
        await memo.bucket_labels.label_buckets(buckets)


def observe_label(memo: Any, key: Key, event: str | None, metadata: kopf.Meta) -> None:
    """Have the object labelled, where shards select by labels and it has not the right one."""
    if memo.bucket_labels is not None and event != "DELETED":
        memo.bucket_labels.observe(key, metadata)


def lead_operators(memo: Any) -> None:
    """Act; one operator at a time, that of the first shard, keeps the copy of the routing table."""
    memo.operator.start()
    if memo.ownership is not None:
        memo.leading.append(supervise_task(memo.ownership.follow, "follow-shares"))
    if memo.bucket_labels is not None:
        memo.bucket_labels.start()
    if memo.shard.number > 0:
        memo.leading.append(supervise_task(memo.operator.follow_routes, "follow-routes"))
    elif memo.routes_secret is not None:
        secret = routes_secret(memo.cluster, memo.operator, memo.routes_secret)
        memo.leading.append(supervise_task(secret.run, "write-routes"))


def routes_secret(cluster: KubernetesCluster, operator: Operator, secret: Key) -> RoutesSecret:
    """What keeps a copy of the operator's routing table in ``secret``."""

    async def build_table() -> PublishedTable | None:
        # Before every index is whole the table lacks what is there.
        return await operator.routes.build() if operator.has_routes else None

    async def write(packed: bytes) -> None:
        await cluster.write_secret(secret, routing_copy.FIELD, packed)

    return RoutesSecret(build_table, write, operator.metrics.observe_routes_secret)


def name_record(
    cluster: KubernetesCluster, config_map: Key | None, routes_secret: Key | None
) -> ConfigMapRecord | None:
    """The record of served names in ``config_map``; ``routes_secret`` has those of an operator that kept none."""
    return None if config_map is None else ConfigMapRecord(cluster, config_map, routes_secret)


async def stop_leading(memo: Any) -> None:
    """Another operator labels, and writes the copy of the routing table from now on, or none."""
    for task in memo.leading:
        task.cancel()
    await asyncio.gather(*memo.leading, return_exceptions=True)
    memo.leading = []
    if memo.bucket_labels is not None:
        await memo.bucket_labels.stop()
    if memo.ownership is not None:
        memo.ownership.clear()


@kopf.on.cleanup(errors=kopf.ErrorsMode.PERMANENT)
async def stop_operator(memo: Any, **_: Any) -> None:
    await stop_leading(memo)
    for task in memo.tasks:
        task.cancel()
    await asyncio.gather(*memo.tasks, return_exceptions=True)
    await memo.operator.stop()
    if memo.leadership is not None:
        await memo.leadership.resign_lease()
    await memo.http.close()
    await memo.cluster.close()


def observe_watch(operator: Operator, watch: Watch, works: bool) -> None:
    """Count a failed watch, and look at its namespace once it works again."""
    operator.metrics.observe_watch(*watch, works)
    if works and operator.synced:
        operator.enqueue_namespace(None if watch.namespace == EVERY_NAMESPACE else watch.namespace)


async def notice_emptiness(
    watches: WatchStates, kinds: Collection[str], operator: Operator, namespaces: list[str]
) -> None:
    """Where there is no LLMDeployment at all, no handler is ever called, and the empty table is the true one."""
    while not operator.synced:
        if watches.is_complete(kinds, max(len(set(namespaces)), 1)):
            operator.synced = operator.synced or not watches.count_objects(labels.KIND)
        await asyncio.sleep(LOOK_SECONDS)


def configure_kopf(settings: kopf.OperatorSettings, shard: Shard) -> None:
    """Events are ours to post, and watches never end; each has the objects of one shard."""
    # Following CRDs as they come would need the right to list all of them, and kopf may look before
    # discovery lists a new one.
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.persistence.diffbase_storage = NothingHandled()
    settings.process.ultimate_exiting_timeout = LONGEST_EXIT_SECONDS
    selectors = dict.fromkeys(SELECTED, shard.select_objects(CHILD_SELECTOR))
    if fleets := shard.select_objects({}):
        selectors[RESOURCE] = fleets
    configure_watches(settings, selectors)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


def index_owner(namespace: str, labels_: Any) -> tuple[str, str]:
    """Which LLMDeployment a child belongs to."""
    return namespace, labels_[labels.INSTANCE]
