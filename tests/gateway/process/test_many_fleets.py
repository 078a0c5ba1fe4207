"""Ten thousand fleets of one namespace, and what another one's is reported with: no document is refused for them."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from paternoster_contract.http import paths
from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_contract.stats import FLEET, MOST_MODELS, WAITING, GatewayStats
from paternoster_gateway import metrics as gateway_metrics
from paternoster_gateway.app import create_app
from paternoster_gateway.metrics import GatewayMetrics

HOSTILE = {f"h{i}": ModelRoute(fleet=f"uid-h{i}", namespace="hostile") for i in range(10_001)}
OTHERS = {f"m{i}": ModelRoute(fleet=f"uid-m{i}", namespace=f"team-{i}") for i in range(20)}
TABLE = {**HOSTILE, **OTHERS}


def build_stats(routes: Mapping[str, ModelRoute], held: Mapping[str, int], metrics: GatewayMetrics) -> GatewayStats:
    stats = metrics.build_stats(routes, lambda name: held.get(name, 0), lambda _: 0)
    return GatewayStats.model_validate_json(stats.model_dump_json())


def test_stats_have_room_for_every_fleet_of_small_namespaces_and_for_what_waits() -> None:
    stats = build_stats(TABLE, {"h10000": 3, "m19": 1}, GatewayMetrics())
    assert (len(stats.models), stats.left_out) == (MOST_MODELS, 21)
    assert stats.models.keys() >= {*OTHERS, "h10000"}
    assert stats.models["h10000"].held == 3


def test_stats_are_bounded_in_bytes_as_well() -> None:
    aliases = [f"{i}" + "é" * 500 for i in range(16)]
    long = {
        name: ModelRoute(fleet=route.fleet, namespace="hostile", aliases=aliases) for name, route in HOSTILE.items()
    }
    metrics = GatewayMetrics()
    stats = metrics.build_stats({**long, **OTHERS}, lambda _: 0, lambda _: 0)
    assert len(stats.model_dump_json()) < 16 * 2**20
    assert stats.models.keys() >= OTHERS.keys()
    assert stats.left_out > 0


@pytest.fixture
def gateway(tmp_path: Path) -> TestClient:
    file = tmp_path / "routes.json"
    file.write_text(
        RoutingTable(models={**TABLE, "m3": OTHERS["m3"].model_copy(update={"hold": False})}).model_dump_json()
    )
    return TestClient(create_app(str(file)))


def test_the_operator_reads_one_fleet_or_those_that_wait(gateway: TestClient) -> None:
    """However many there are: a fleet of the others that sleeps wakes."""
    with gateway:
        for _ in range(1000):
            if gateway.get(paths.READY).status_code == 200:
                break
        one = GatewayStats.model_validate_json(gateway.get(paths.STATS, params={FLEET: "uid-m3"}).text)
        assert list(one.models) == ["m3"]
        none = GatewayStats.model_validate_json(gateway.get(paths.STATS, params={FLEET: "nobody"}).text)
        assert none.models == {}
        assert gateway.get(paths.STATS, params={WAITING: "1"}).json()["models"] == {}
        refused = gateway.post("/v1/chat/completions", json={"model": "m3", "messages": []})
        assert refused.status_code == 503
        waiting = GatewayStats.model_validate_json(gateway.get(paths.STATS, params={WAITING: "1"}).text)
        assert {name: row.refused for name, row in waiting.models.items()} == {"m3": 1}
        assert gateway.get(paths.STATS).status_code == 200


def test_a_model_without_a_request_has_no_series_and_those_with_one_share_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway_metrics, "MOST_MODELS_WITH_SERIES", 30)
    metrics = GatewayMetrics()
    metrics.retain_only(TABLE)
    metrics.set_gauges(lambda _: 0)
    assert not [s for f in metrics.registry.collect() for s in f.samples if s.labels.get("model")]
    for name in (*list(HOSTILE)[:40], *OTHERS):
        metrics.begin_request(name)
        metrics.requests.labels(metrics.label_of(name), "/r", "200").inc()
    counted = {s.labels["model"]: s.value for s in metrics.requests.collect()[0].samples if s.name.endswith("_total")}
    assert {name: counted[name] for name in OTHERS} == dict.fromkeys(OTHERS, 1)
    assert len(counted) == 31
    assert counted[""] == 10, "what has no series is counted for no model"
    assert metrics.registry.get_sample_value("paternoster_gateway_models_without_series") == 30
    metrics.retain_only(OTHERS)
    left = {s.labels["model"] for f in metrics.registry.collect() for s in f.samples if s.labels.get("model")}
    assert left == OTHERS.keys()
