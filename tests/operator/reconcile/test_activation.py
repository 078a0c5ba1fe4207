"""Fleets without replicas: what the gateway gets, and that a request wakes them."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from paternoster_operator import activation
from paternoster_operator.activation import wake_fleets
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.autoscaling.control_loop import LoopStates
from paternoster_operator.autoscaling.decision import REPLICAS
from paternoster_operator.autoscaling.loops.limits import ReplicaState
from paternoster_operator.cluster.port import Key
from paternoster_operator.fleet import Fleet
from paternoster_operator.plan.plan import FleetMemory
from paternoster_operator.routes.row import SOONEST_RETRY_SECONDS, build_route

Resource = Callable[..., LLMDeployment]


def to_zero(**fields: Any) -> dict[str, Any]:
    return {"minReplicas": 0, "maxReplicas": 2, "scaleToZero": {"enabled": True, **fields}}


def test_a_fleet_that_never_sleeps_holds_as_admission_says(resource: Resource) -> None:
    route = build_route(resource(admission={"maxHeldRequests": 3, "holdTimeoutSeconds": 7}))
    assert (route.max_held, route.hold_timeout_seconds, route.hold) == (3, 7, True)


def test_a_fleet_that_sleeps_holds_until_it_is_awake(resource: Resource) -> None:
    route = build_route(resource(autoscaling=to_zero(activationTimeoutSeconds=77)))
    assert (route.hold_timeout_seconds, route.hold) == (77, True)


def test_a_refused_request_is_told_what_starts_take(resource: Resource) -> None:
    fleet = resource(autoscaling=to_zero(coldRequestPolicy="Reject", activationTimeoutSeconds=300))
    assert build_route(fleet).hold is False
    assert build_route(fleet).retry_after_seconds == SOONEST_RETRY_SECONDS
    fleet.status = {"startup": {"averageSeconds": 42}}
    assert build_route(fleet).retry_after_seconds == 42
    fleet.status = {"startup": {"averageSeconds": 4200}}
    assert build_route(fleet).retry_after_seconds == 300


@pytest.mark.parametrize(("written", "created"), [("2026-03-01T12:00:00Z", 1772366400), ("soon", None), (None, None)])
def test_clients_are_told_when_it_was_made(resource: Resource, written: str | None, created: int | None) -> None:
    fleet = resource()
    fleet.metadata.creation_timestamp = written
    assert build_route(fleet).created == created
    fleet = resource(autoscaling=to_zero())
    fleet.metadata.creation_timestamp = written
    assert build_route(fleet).created == created


@pytest.fixture
def fleets(resource: Resource) -> dict[Key, Fleet]:
    """One of each kind; only ``asleep`` waits for a request."""

    def fleet(now: int, **spec: Any) -> Fleet:
        return Fleet(resource(**spec), FleetMemory(LoopStates({REPLICAS: ReplicaState(target=now, since=0)})))

    return {
        Key("lifts", "asleep"): fleet(0, autoscaling=to_zero()),
        Key("lifts", "awake"): fleet(1, autoscaling=to_zero()),
        Key("lifts", "advised"): fleet(0, autoscaling={**to_zero(), "mode": "Advisory"}),
        Key("lifts", "paused"): fleet(0, autoscaling=to_zero(), paused=True),
        Key("lifts", "fixed"): fleet(0, replicas=0),
        Key("lifts", "unseen"): Fleet.from_status(resource()),
    }


async def run(fleets: dict[Key, Fleet], held: Mapping[str, int]) -> tuple[list[Key], int]:
    """What is enqueued in a few rounds, and how often the gateways were read."""
    enqueued: list[Key] = []
    num_rounds = 0
    enough = asyncio.Event()

    async def read_gateways() -> Mapping[str, int]:
        nonlocal num_rounds
        num_rounds += 1
        if num_rounds == 3:
            enough.set()
        return held

    waking = asyncio.create_task(wake_fleets(fleets, read_gateways, enqueued.append))
    try:
        async with asyncio.timeout(0.3):
            await enough.wait()
    except TimeoutError:
        pass
    assert not waking.done()
    waking.cancel()
    return enqueued, num_rounds


async def test_a_held_request_wakes_the_fleets_that_sleep(
    fleets: dict[Key, Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activation, "POLL_SECONDS", 0.0)
    enqueued, _ = await run(fleets, {"uid-1": 1})
    assert set(enqueued) == {Key("lifts", "asleep")}
    assert len(enqueued) >= 2, "level-triggered: as long as requests wait"


async def test_nobody_is_woken_for_nothing(fleets: dict[Key, Fleet], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation, "POLL_SECONDS", 0.0)
    assert (await run(fleets, {"uid-1": 0, "another": 5}))[0] == []


async def test_no_gateway_is_asked_while_all_are_awake(
    fleets: dict[Key, Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activation, "POLL_SECONDS", 0.0)
    del fleets[Key("lifts", "asleep")]
    assert await run(fleets, {"uid-1": 1}) == ([], 0)
