"""Streams leave replicas that end, by a smaller fleet, an eviction or a rollout, and none is dropped.

``PATERNOSTER_ROUNDS`` is how often, once by default, with ``PATERNOSTER_SCALE_DOWNS`` scale-downs in each, one by
default, from ``PATERNOSTER_REPLICAS``, two by default, to one. A round takes two minutes or more, and a further
scale-down one.
"""

import os
import time
from collections.abc import Callable
from functools import partial

import pytest
from tqdm import tqdm

from paternoster_contract.labels import SCALE_DOWN
from paternoster_e2e.fleet import Fleet
from paternoster_e2e.kubectl import Document, until
from paternoster_e2e.load import StreamLoad, streams
from paternoster_e2e.release import drained_streams

ROUNDS = int(os.environ.get("PATERNOSTER_ROUNDS", "1"))
SCALE_DOWNS = int(os.environ.get("PATERNOSTER_SCALE_DOWNS", "1"))
"""In each round."""
REPLICAS = int(os.environ.get("PATERNOSTER_REPLICAS", "2"))

pytestmark = pytest.mark.timeout(1200 + 200 * ROUNDS * (1 + SCALE_DOWNS))

ENGINE = {"maxNumSeqs": 8, "maxModelLen": 1024, "kvCacheMemory": "128Mi", "batchInvariant": True}
CLIENTS = 2 * REPLICAS
LONG = {"prompt_words": 20, "max_tokens": 600}
"""Streams of a minute and more on a core that is shared."""
LEAST_LEFT = 100
"""Tokens that each stream has to go when a replica is made to end: none ends in the seconds before it does."""


def is_ending(pod: Document) -> bool:
    metadata = pod["metadata"]
    return "deletionTimestamp" in metadata or SCALE_DOWN in metadata.get("annotations", {})


def wait_for_long_streams(fleet: Fleet, load: StreamLoad) -> None:
    """Each replica has a stream, and each stream some time to go: whichever replica ends has one to move."""
    fleet.until_ready(REPLICAS)
    until(
        lambda: load.least_left >= LEAST_LEFT and all(map(fleet.running, fleet.all_pods())),
        "streams at each replica that go on for a while",
        300,
    )


def evict(fleet: Fleet) -> None:
    """The replica with most streams, as a drain of its node does."""
    metadata = {"name": max(fleet.all_pods(), key=fleet.running), "namespace": fleet.namespace}
    path = f"/api/v1/namespaces/{fleet.namespace}/pods/{metadata['name']}/eviction"
    document = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    fleet.kubectl("create", f"--raw={path}", "--filename=-", document=document)


def end_replicas(fleet: Fleet, what: str, number: int, begin: Callable[[], None]) -> None:
    """After ``begin``, ``number`` replicas end while streams run; prints when each engine was empty, and each gone."""
    before, old = drained_streams(fleet.kubectl), set(fleet.all_pods())
    began: dict[str, float] = {}
    empty: dict[str, float] = {}
    gone: dict[str, float] = {}
    begin()

    def all_gone() -> bool:
        pods = fleet.all_pods()
        for name in old - gone.keys():
            if name not in pods or is_ending(pods[name]):
                began.setdefault(name, time.monotonic())
                if name not in empty and not fleet.running(name):
                    empty[name] = time.monotonic() - began[name]
                if name not in pods:
                    gone[name] = time.monotonic() - began[name]
        return len(gone) == number

    until(all_gone, f"{what}: {number} gone", 600)
    # One whose next frame the other replica still computes counts once that is there.
    moved = until(lambda: drained_streams(fleet.kubectl) - before, f"{what}: a stream moves", 60)
    seconds = ", ".join(f"engine empty after {empty[name]:.1f} s, gone after {gone[name]:.1f} s" for name in gone)
    print(f"{what}: {seconds}; {moved:.0f} moved")


def test_replicas_end_under_streams(fleet: Fleet, gateway: str) -> None:
    fleet.apply(replicas=REPLICAS, engine=ENGINE)
    fleet.until_ready(REPLICAS)
    with streams(gateway, fleet.name, CLIENTS, **LONG) as load:
        engine: Document = ENGINE
        for number in tqdm(range(ROUNDS), desc="rounds", disable=ROUNDS == 1):
            for _ in range(SCALE_DOWNS):
                wait_for_long_streams(fleet, load)
                end_replicas(fleet, "scale-down", REPLICAS - 1, partial(fleet.apply, replicas=1, engine=engine))
                fleet.apply(replicas=REPLICAS, engine=engine)
            wait_for_long_streams(fleet, load)
            end_replicas(fleet, "eviction", 1, partial(evict, fleet))
            wait_for_long_streams(fleet, load)
            engine = {**ENGINE, "maxQueuedRequests": 100 + number}
            end_replicas(fleet, "rollout", REPLICAS, partial(fleet.apply, replicas=REPLICAS, engine=engine))
            fleet.until_ready(REPLICAS)
    assert load.dropped == []
