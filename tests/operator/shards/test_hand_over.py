"""A fleet that another operator gets in the middle of a look: the look ends, and that is no fault."""

import logging
from pathlib import Path
from typing import Any

import pytest
from tests.operator.kubernetes.fake_api_server import FakeApiServer
from tests.operator.kubernetes.running_operator import operator

from paternoster_contract import labels
from paternoster_operator.cluster.port import Key

LEASE = Key("system", "operator")
COUNTER = 'paternoster_operator_reconciles_total{outcome="handed_over"}'


async def test_a_look_at_a_fleet_that_is_handed_over_is_one_line_and_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server, key = FakeApiServer(), Key("lifts", "ride")
    async with operator(server, tmp_path, monkeypatch, lease=LEASE) as running:
        await running.until(lambda: running.status("lifts").get("conditions"))
        memo, find_owner = running.memo, running.memo.cluster.check_owner
        reconciler = memo.operator._reconciler
        handed_over: list[bool] = []

        async def lose_fleet(child: Any) -> Any:
            """Between the begin of a look and its first write the Lease gets too old, and with it all buckets."""
            found = await find_owner(child)
            if child["metadata"]["name"] == key.name and child["metadata"]["namespace"] == key.namespace:
                handed_over.append(key in reconciler.fleets)
                memo.ownership._find_term = lambda: None
            return found

        monkeypatch.setattr(memo.cluster, "check_owner", lose_fleet)
        with caplog.at_level(logging.INFO, logger="paternoster_operator"):
            caplog.clear()
            fleet = server.objects[labels.PLURAL, *key]
            spec = {**fleet["spec"], "replicas": 2}
            metadata = {**fleet["metadata"], "generation": fleet["metadata"]["generation"] + 1}
            await server.put(labels.PLURAL, {"metadata": metadata, "spec": spec})
            await running.until(lambda: handed_over and key not in reconciler.fleets)
        lines = [
            (record.levelname, record.getMessage()) for record in caplog.records if str(key) in record.getMessage()
        ]
        assert [line for line in lines if "handed over" in line[1] or "may not act" in line[1]] == [
            ("INFO", f"{key} is handed over to shard 0: this look at it ends")
        ]
        assert not any(record.exc_info for record in caplog.records)
        _, metrics = await running.get("/metrics")
        (counted,) = (line for line in metrics.splitlines() if line.startswith(COUNTER))
        assert float(counted.split()[1]) >= 1, "the other fleet may be looked at in the same moment"
        assert 'name="ride",namespace="lifts"' not in metrics
        # Another term: the fleet is this operator's again, and is looked at again.
        monkeypatch.setattr(memo.cluster, "check_owner", find_owner)
        memo.ownership._find_term = lambda: 99
        await running.until(lambda: running.status("lifts").get("observedGeneration") == metadata["generation"])
