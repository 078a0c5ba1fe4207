"""Every document that all namespaces share: one with ten thousand fleets takes no other's place in it."""

from collections.abc import Callable, Iterable

import pytest

from paternoster_contract.routing import ModelRoute
from paternoster_contract.routing_copy import RoutingCopy
from paternoster_contract.routing_rows import MOST_BYTES
from paternoster_contract.stats import GatewayStats
from paternoster_gateway.metrics import MOST_MODELS_WITH_SERIES, GatewayMetrics
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


@pytest.mark.parametrize(
    "write",
    [publish_rows, publish_unread_names, copy_rows, record_names, report_stats, count_requests, count_failures],
)
def test_what_is_too_much_is_cut_from_the_namespace_that_wants_it(write: Callable[[], Iterable[str]]) -> None:
    written = {*write()}
    assert written >= {key.name for key in OTHERS}
    assert written & {key.name for key in HOSTILE}, "which has what no other wants"
