"""Engines that end: once after they served, again and again, and replicas that others take the place of."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.operator.reconcile.world import World

from paternoster_contract.labels import ENGINE_TYPE
from paternoster_operator.settings import Settings

RECORDED = Path(__file__).parents[2] / "engines/recorded"
START = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
WORKER = "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor."


class Replica:
    """A pod as a kubelet reports it, by a clock of its own."""

    def __init__(self, world: World, type_: str = "") -> None:
        self.world = world
        self.restarts, self.name, self.type = 0, "a", type_
        self.seconds = self.began = 0.0
        self.last: dict[str, Any] = {}

    def now(self, seconds: float | None = None) -> datetime:
        return START + timedelta(seconds=self.seconds if seconds is None else seconds)

    def end(self, log: str = "boom", status: int = 1, reason: str = "Error") -> None:
        """Its process ends, and waits for its next start."""
        self.last = {
            "terminated": {
                "exitCode": status, "reason": reason, "message": log,
                "startedAt": write_time(self.now(self.began)), "finishedAt": write_time(self.now()),
            }
        }  # fmt: skip
        self.show({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}})

    def start(self, *, ready: bool) -> None:
        """Its next process runs."""
        self.began = self.seconds
        self.restarts += bool(self.last)
        self.show({"running": {"startedAt": write_time(self.now())}}, ready=ready)

    def show(self, state: dict[str, Any], *, ready: bool = False) -> None:
        annotations = {ENGINE_TYPE: self.type} if self.type else {}
        pod = self.world.engine.pod(self.name, ready=ready, annotations=annotations, labels={})
        pod["status"]["containerStatuses"] = [
            {"name": "engine", "ready": ready, "restartCount": self.restarts, "state": state, "lastState": self.last}
        ]
        self.world.cluster.shown_pods = [pod]

    def serve(self) -> None:
        self.show({"running": {"startedAt": write_time(self.now(self.began))}}, ready=True)

    async def reconcile_world(self, after: float = 5.0) -> None:
        self.seconds += after
        deployment = self.world.cluster.children.get("Deployment")
        if deployment is not None:
            ready = self.world.cluster.shown_pods[0]["status"]["containerStatuses"][0]["ready"]
            counts = {"replicas": 1, "updatedReplicas": 1, "availableReplicas": int(ready)}
            deployment["status"] = {"observedGeneration": deployment["metadata"]["generation"], **counts}
        await self.world.reconcile(after)


def write_time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
async def replica(world: World, document: Callable[..., dict[str, Any]]) -> Replica:
    replica = Replica(world)
    world.reconciler = world.new_reconciler(Settings(), wall=lambda: replica.now())
    world.cluster.resource = document()
    await world.reconcile()
    return replica


def reasons(world: World) -> tuple[str, str]:
    """Reasons of Ready, and of Stalled or, while that is not there, of Reconciling."""
    other = world.cluster.condition("Stalled") or world.cluster.condition("Reconciling")
    return world.cluster.condition("Ready")["reason"], other.get("reason", "")


async def test_two_ends_of_an_engine_that_served_are_restarts_and_the_third_is_a_loop(
    world: World, replica: Replica
) -> None:
    replica.start(ready=True)
    await replica.reconcile_world()
    seen = []
    for _ in range(3):
        replica.end(status=137)
        await replica.reconcile_world()
        seen.append(reasons(world))
        replica.start(ready=False)
        await replica.reconcile_world()
        seen.append(reasons(world))
        replica.serve()
        await replica.reconcile_world()
    restarted, loop = ("EngineRestarted",) * 2, ("EngineCrashLoop",) * 2
    assert seen == [restarted] * 4 + [loop] * 2
    assert world.cluster.condition("Ready")["status"] == "True", "it serves again"


async def test_the_words_of_a_restart_are_those_of_its_end(world: World, replica: Replica) -> None:
    replica.start(ready=True)
    await replica.reconcile_world()
    replica.end("boom", status=137)
    await replica.reconcile_world()
    words = "a: ended with exit code 137 (SIGKILL): boom; it starts again"
    assert words in world.cluster.condition("Ready")["message"]
    assert words in world.cluster.condition("Reconciling")["message"]
    assert world.cluster.condition("Ready")["status"] == "Unknown"


async def test_ends_long_ago_do_not_count(world: World, replica: Replica) -> None:
    """The pod is weeks old and has restarts from each upgrade of its node."""
    replica.start(ready=True)
    await replica.reconcile_world()
    for _ in range(6):
        replica.end()
        await replica.reconcile_world()
        assert reasons(world) == ("EngineRestarted",) * 2
        replica.start(ready=True)
        for _ in range(3):
            await replica.reconcile_world(after=150)
            replica.serve()


async def test_an_operator_that_begins_reads_from_a_long_run_that_it_served(world: World, replica: Replica) -> None:
    replica.restarts, replica.last = 7, {}
    replica.seconds = 86_400
    replica.end()
    await replica.reconcile_world()
    assert reasons(world) == ("EngineRestarted",) * 2
    replica.start(ready=False)
    await replica.reconcile_world()
    replica.end()
    await replica.reconcile_world()
    assert reasons(world) == ("EngineRestarted",) * 2
    replica.start(ready=False)
    replica.end()
    await replica.reconcile_world()
    assert reasons(world) == ("EngineCrashLoop",) * 2


async def test_an_engine_that_never_served_is_told_at_its_first_wait(world: World, replica: Replica) -> None:
    replica.start(ready=False)
    await replica.reconcile_world()
    replica.end("vllm: error: unrecognized arguments: --nope", status=2)
    await replica.reconcile_world()
    assert reasons(world) == ("EngineCrashLoop",) * 2


async def test_a_pod_that_takes_the_place_of_another_is_no_scale_up(world: World, replica: Replica) -> None:
    replica.start(ready=False)
    await replica.reconcile_world()
    assert reasons(world) == ("ModelLoading", "ScalingUp")
    replica.serve()
    await replica.reconcile_world()
    replica.name = "b"
    replica.start(ready=False)
    for _ in range(3):
        await replica.reconcile_world()
        assert reasons(world) == ("ModelLoading", "ReplicaReplaced")
    replica.serve()
    await replica.reconcile_world()
    assert world.cluster.condition("Reconciling").get("reason") not in ("ReplicaReplaced", "ScalingUp")


async def test_a_replica_that_is_not_ready_any_more_is_named(world: World, replica: Replica) -> None:
    replica.start(ready=True)
    await replica.reconcile_world()
    replica.show({"running": {"startedAt": write_time(replica.now(0))}})
    await replica.reconcile_world()
    assert world.cluster.condition("Reconciling")["reason"] == "ReplicaNotReady"
    assert "a served before" in world.cluster.condition("Reconciling")["message"]


async def test_a_replica_that_only_fails_its_probes_is_told_with_no_end_of_before(
    world: World, replica: Replica
) -> None:
    """Its ends are long ago, or it came back from the last one."""
    replica.start(ready=True)
    await replica.reconcile_world()
    for _ in range(3):
        replica.end()
        await replica.reconcile_world()
        replica.start(ready=True)
        await replica.reconcile_world()
        replica.show({"running": {"startedAt": write_time(replica.now(replica.began))}})
        await replica.reconcile_world()
        assert reasons(world) == ("ModelLoading", "ReplicaNotReady")
        replica.serve()
        await replica.reconcile_world()


@pytest.mark.parametrize(
    ("part", "line"),
    [
        (slice(3500), f"{WORKER}; -9 is SIGKILL, which kernels send where memory runs out"),
        # A kubelet's share of a log, which begins behind that line.
        (slice(-2048, None), "RuntimeError: Executor failed."),
    ],
)
async def test_a_dead_worker_of_vllm_is_named(
    world: World, replica: Replica, document: Callable[..., dict[str, Any]], part: slice, line: str
) -> None:
    replica.type = "VLLM"
    runtime = {"type": "VLLM", "image": "vllm:1"}
    world.cluster.resource = document(model={"source": "file:///m"}, engine={"runtime": runtime})
    replica.start(ready=False)
    replica.end((RECORDED / "vllm-0.32-dead-worker.log").read_text()[part], status=0, reason="Completed")
    await replica.reconcile_world()
    assert reasons(world) == ("EngineCrashLoop",) * 2
    assert world.cluster.condition("Ready")["message"] == f"a: ended with exit code 0: {line}"


async def test_memory_that_ran_out_is_a_reason_of_its_own(
    world: World, replica: Replica, document: Callable[..., dict[str, Any]]
) -> None:
    replica.type = "VLLM"
    runtime = {"type": "VLLM", "image": "vllm:1"}
    world.cluster.resource = document(model={"source": "file:///m"}, engine={"runtime": runtime})
    replica.start(ready=False)
    replica.end("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\nINFO: Shutting down")
    await replica.reconcile_world()
    assert reasons(world) == ("OutOfMemory",) * 2
    assert "CUDA out of memory" in world.cluster.condition("Stalled")["message"]


async def test_a_server_that_ended_with_0_and_kept_no_log_says_where_to_look(
    world: World, replica: Replica, document: Callable[..., dict[str, Any]]
) -> None:
    """Kubelets keep no log of such an end."""
    replica.type = "VLLM"
    runtime = {"type": "VLLM", "image": "vllm:1"}
    world.cluster.resource = document(model={"source": "file:///m"}, engine={"runtime": runtime})
    replica.start(ready=False)
    replica.end("", status=0, reason="Completed")
    await replica.reconcile_world()
    assert (
        "another process of its engine has died; its log has the cause" in world.cluster.condition("Ready")["message"]
    )
