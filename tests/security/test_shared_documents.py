"""Every document that all namespaces share: one with ten thousand fleets takes no other's place in it."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from paternoster_contract.access.keys import digest_key
from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_contract.routing_copy import RoutingCopy
from paternoster_contract.routing_rows import MOST_BYTES
from paternoster_contract.stats import GatewayStats
from paternoster_gateway.admission.admission import admit_request, models_open_to
from paternoster_gateway.admission.known_parties import KnownParties
from paternoster_gateway.admission.quarantine import MAX_BODIES, Quarantine
from paternoster_gateway.app import MOST_LISTED, MOST_LISTED_BYTES, share_models
from paternoster_gateway.metrics import MOST_MODELS_WITH_SERIES, GatewayMetrics
from paternoster_gateway.prefixes.prefix_index import PrefixIndex
from paternoster_operator.cluster.port import Key
from paternoster_operator.metrics import MOST_FLEETS_WITH_SERIES, OperatorMetrics
from paternoster_operator.names.record import MAX_RECORD_BYTES, NameRecord, update_record
from paternoster_operator.names.served_names import Claim
from paternoster_operator.routes.copy_secret import _pack_rows
from paternoster_operator.routes.published import PublishedRow, PublishedTable, UnreadRow
from paternoster_operator.settings import Names

HOSTILE = [Key("hostile", f"h{i}") for i in range(10_001)]
OTHERS = [Key(f"team-{i}", f"m{i}") for i in range(20)]
FLEETS = [*HOSTILE, *OTHERS]
LONG = ["x" * 500] * 3
"""Aliases, so that what is bounded in bytes is full."""


def publish_rows() -> Iterable[str]:
    rows = [PublishedRow(key.name, key, ModelRoute(aliases=LONG)) for key in FLEETS]
    table = PublishedTable(rows).fit_rows(MOST_BYTES)
    assert len(table.lines) <= MOST_BYTES + 2**20
    assert table.left_out.keys() == {row.fleet for row in rows} - {row.fleet for row in table.rows}
    return table.table.models


def publish_unread_names() -> Iterable[str]:
    unread = [UnreadRow([key.name, *LONG], key) for key in FLEETS]
    table = PublishedTable([], unread).fit_rows(MOST_BYTES)
    assert len(table.lines) <= MOST_BYTES + 2**20
    return table.unread_names


def copy_rows() -> Iterable[str]:
    rows = [PublishedRow(key.name, key, ModelRoute(aliases=LONG)) for key in FLEETS]
    return RoutingCopy.unpack(_pack_rows(PublishedTable(rows), PublishedTable().table, 0.0)).table.models


def record_names() -> Iterable[str]:
    claims = [Claim(key, (key.name, f"{key}{'x' * 200}"), (), "2026-01-01T00:00:00Z") for key in FLEETS]
    assignment = update_record(NameRecord(), claims, FLEETS, Names.GLOBAL, 0)
    assert len(assignment.record.encode().encode()) <= MAX_RECORD_BYTES
    assert len(assignment.left_out) + len(assignment.record.fleets) == len(FLEETS)
    return assignment.owned.owners


def report_stats() -> Iterable[str]:
    routes = {key.name: ModelRoute(namespace=key.namespace, fleet=str(key)) for key in FLEETS}
    stats = GatewayMetrics().build_stats(routes, lambda _: 0, lambda _: 0)
    assert len(stats.models) + stats.left_out == len(FLEETS)
    return GatewayStats.model_validate_json(stats.model_dump_json()).models


def count_requests() -> Iterable[str]:
    metrics = GatewayMetrics()
    metrics.retain_only({key.name: ModelRoute(namespace=key.namespace) for key in FLEETS})
    for key in FLEETS:
        metrics.begin_request(key.name)
    models = {sample.labels["model"] for family in metrics.broken.collect() for sample in family.samples}
    assert len(models) == MOST_MODELS_WITH_SERIES
    return models


def count_failures() -> Iterable[str]:
    metrics = OperatorMetrics()
    for key in FLEETS:
        metrics.count_failure(key, "ClusterRefused")
    names = {sample.labels["name"] for family in metrics.failures.collect() for sample in family.samples}
    assert len(names) == MOST_FLEETS_WITH_SERIES
    return names


def table_of_fleets(**fields: Any) -> RoutingTable:
    rows = {key.name: ModelRoute(namespace=key.namespace, fleet=str(key), **fields) for key in FLEETS}
    return RoutingTable(models=rows)


def list_models() -> Iterable[str]:
    table = table_of_fleets(aliases=LONG)
    listed, left_out = share_models(table, models_open_to(table, digest_key(""), 0.0))
    cards = [name for first in listed for name in (first, *table.models[first].aliases)]
    assert len(cards) <= MOST_LISTED
    assert sum(map(len, cards)) <= MOST_LISTED_BYTES
    assert len(listed) + left_out == len(FLEETS)
    return listed


def remember_keys() -> Iterable[str]:
    """The last of a namespace are those that it sends now."""
    parties, table = KnownParties(), table_of_fleets()
    for key in (*OTHERS, *HOSTILE):
        table.models[key.name].key_digests = [digest_key(key.name)]
        parties.add_party(admit_request(table, key.name, digest_key(key.name), 0.0))
    assert parties.party_of(digest_key(HOSTILE[-1].name), table) is not None
    return [key.name for key in FLEETS if parties.party_of(digest_key(key.name), table) is not None]


def refuse_bodies() -> Iterable[str]:
    quarantine = Quarantine()
    for key in (*OTHERS, *HOSTILE):
        quarantine.add(key.name.encode(), 0.0, key.namespace)
    assert quarantine.count(0.0) == MAX_BODIES
    assert quarantine.contains(HOSTILE[-1].name.encode(), 0.0)
    return [key.name for key in FLEETS if quarantine.contains(key.name.encode(), 0.0)]


def index_replicas() -> Iterable[str]:
    index = PrefixIndex(max_replicas=100)
    index.namespaces = {key.name: key.namespace for key in FLEETS}
    for key in (*HOSTILE, *OTHERS, *HOSTILE):
        index.store(key.name, [(1, 1)])
    assert len(index.replicas) == 100
    assert index.refused > 0
    return index.find([1])


def index_pieces() -> Iterable[str]:
    """Twenty namespaces with a replica that holds 40 pieces, beside one with forty such replicas."""
    pieces, keys = [(at, 1) for at in range(40)], [*HOSTILE[:40], *OTHERS]
    index = PrefixIndex(max_pieces=1_000, max_of_replica=40)
    index.namespaces = {key.name: key.namespace for key in keys}
    for key in keys:
        index.store(key.name, ())
    for key in keys:
        index.store(key.name, pieces)
    assert sum(index.count(key.name) for key in keys) <= 1_000
    assert 0 < index.count(HOSTILE[0].name) < 40
    return [HOSTILE[0].name, *(key.name for key in OTHERS if index.count(key.name) == 40)]


@pytest.mark.parametrize(
    "write",
    [
        publish_rows, publish_unread_names, copy_rows, record_names, report_stats, count_requests, count_failures,
        list_models, remember_keys, refuse_bodies, index_replicas, index_pieces,
    ],
)  # fmt: skip
def test_what_is_too_much_is_cut_from_the_namespace_that_wants_it(write: Callable[[], Iterable[str]]) -> None:
    written = {*write()}
    assert written >= {key.name for key in OTHERS}
    assert written & {key.name for key in HOSTILE}, "which has what no other wants"
