"""A model that is fetched before its engine starts: how far it is, why it cannot be, and that it heals."""

from collections.abc import Callable
from typing import Any

from tests.operator.reconcile.world import World

from paternoster_contract.fetch_status import FetchStatus

MODEL = {"source": "hf://org/name@v9"}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def pod(world: World, **container: Any) -> dict[str, Any]:
    """Its engine waits for the container that is as ``container`` says."""
    found = world.engine.pod("a", ready=False)
    waits = {"name": "engine", "state": {"waiting": {"reason": "PodInitializing"}}}
    init = {"name": "model", "ready": False, **container}
    return {
        **found,
        "status": {
            **found["status"],
            "phase": "Pending",
            "initContainerStatuses": [init],
            "containerStatuses": [waits],
        },
    }


async def test_how_far_it_is_is_asked_of_the_pod(world: World, document: Callable[..., dict[str, Any]]) -> None:
    world.cluster.resource = document(replicas=1, model=MODEL)
    world.cluster.shown_pods = [pod(world, state=RUNNING)]
    world.engine.numbers |= {"state": "downloading", "done": 4300, "total": 10_000, "rate": 2.1e8}
    await world.reconcile()
    ready = world.cluster.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "ModelDownloading")
    assert ready["message"].endswith(
        "hf://org/name@v9 is fetched by a since 2026-01-01T00:00:00Z (43 % of 0.0 GB, 210.0 MB/s)"
    )
    written = len(world.cluster.statuses)
    for done, rate in ((4310, 1.9e8), (4390, 2.3e8)):
        world.engine.numbers |= {"done": done, "rate": rate}
        await world.reconcile()
    assert len(world.cluster.statuses) == written, "a rate alone is not written"
    for done, rate, share in ((4390, 0.0, "(43 % of 0.0 GB)"), (4400, 5e6, "(44 % of 0.0 GB, 5.0 MB/s)")):
        world.engine.numbers |= {"done": done, "rate": rate}
        await world.reconcile()
        assert world.cluster.condition("Ready")["message"].endswith(share)
    world.engine.numbers |= {"state": "no state"}
    await world.reconcile()
    assert world.cluster.condition("Ready")["message"].endswith("a since 2026-01-01T00:00:00Z")


async def test_a_failure_is_told_once_and_heals(world: World, document: Callable[..., dict[str, Any]]) -> None:
    world.cluster.resource = document(replicas=1, model=MODEL)
    fetch_status = FetchStatus(
        state="failed", reason="RevisionNotFound", message="model 'hf://org/name@v9': has no revision v9"
    )
    world.cluster.shown_pods = [
        pod(world, state={"terminated": {"exitCode": 3, "message": f"{fetch_status.to_json_line()}\n"}})
    ]
    for _ in range(3):
        await world.reconcile()
    for kind, status in (("Stalled", "True"), ("Ready", "False")):
        condition = world.cluster.condition(kind)
        assert (condition["status"], condition["reason"]) == (status, "RevisionNotFound")
        assert condition["message"] == "a: container model: model 'hf://org/name@v9': has no revision v9"
    assert [(event.type, event.reason) for event in world.cluster.events].count(("Warning", "RevisionNotFound")) == 1
    world.cluster.shown_pods = [world.engine.pod("b")]
    await world.reconcile()
    assert world.cluster.condition("Ready")["status"] == "True"
    assert world.cluster.condition("Stalled") == {}
