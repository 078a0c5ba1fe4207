"""Streams leave replicas that end, by a smaller fleet, an eviction or a rollout, and none is dropped."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from paternoster_contract.labels import SCALE_DOWN
from paternoster_e2e.kubectl import Document, until
from paternoster_e2e.load import StreamLoad, streams
from paternoster_e2e.release import drained_streams

pytestmark = pytest.mark.timeout(1500)

ENGINE = {"maxNumSeqs": 8, "maxModelLen": 1024, "kvCacheMemory": "128Mi", "batchInvariant": True}
SCALE_DOWNS = 1
CLIENTS = 4
LONG = {"prompt_words": 20, "max_tokens": 600}
"""Streams of a minute and more on a core that is shared."""
LEAST_LEFT = 150
"""Tokens that each stream has to go when a replica is made to end: none ends in the seconds before it does."""


def is_ending(pod: Document) -> bool:
    metadata = pod["metadata"]
    return "deletionTimestamp" in metadata or SCALE_DOWN in metadata.get("annotations", {})


def until_busy(fleet: Any, load: StreamLoad) -> None:
    """Streams with some time to go run at each replica, so that whichever ends has some to move."""

    def is_busy() -> bool:
        return all(fleet.running(name) for name in fleet.all_pods()) and load.least_left >= LEAST_LEFT

    until(is_busy, "each replica has streams that go on for a while", 300)


def evict(fleet: Any) -> None:
    """One of the replicas, as a drain of its node does."""
    metadata = {"name": min(fleet.all_pods()), "namespace": fleet.namespace}
    path = f"/api/v1/namespaces/{fleet.namespace}/pods/{metadata['name']}/eviction"
    document = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    fleet.kubectl("create", f"--raw={path}", "--filename=-", document=document)


def end_replica(fleet: Any, what: str, begin: Callable[[], None]) -> None:
    """After ``begin`` a replica ends while streams run; prints when its engine was empty, and when it was gone."""
    before = drained_streams(fleet.kubectl)
    begin()
    ending = until(lambda: [name for name, pod in fleet.all_pods().items() if is_ending(pod)], f"{what}: one ends", 240)
    began = time.monotonic()
    until(lambda: not fleet.running(ending[0]), f"{what}: its engine is empty", 120)
    empty = time.monotonic() - began
    until(lambda: ending[0] not in fleet.all_pods(), f"{what}: it is gone", 120)
    moved = drained_streams(fleet.kubectl) - before
    print(f"{what}: engine empty after {empty:.1f} s, gone after {time.monotonic() - began:.1f} s, {moved:.0f} moved")
    assert moved >= 1, what


def test_replicas_end_under_streams(fleet: Any, gateway: str) -> None:
    fleet.apply(replicas=2, engine=ENGINE)
    fleet.until_ready(2)
    with streams(gateway, fleet.name, CLIENTS, **LONG) as load:
        for number in range(SCALE_DOWNS):
            until_busy(fleet, load)
            end_replica(fleet, f"scale-down {number}", lambda: fleet.apply(replicas=1, engine=ENGINE))
            fleet.apply(replicas=2, engine=ENGINE)
            fleet.until_ready(2)
        until_busy(fleet, load)
        end_replica(fleet, "eviction", lambda: evict(fleet))
        fleet.until_ready(2)
        until_busy(fleet, load)
        end_replica(fleet, "rollout", lambda: fleet.apply(replicas=2, engine=ENGINE | {"maxQueuedRequests": 100}))
        fleet.until_ready(2)
    assert load.dropped == []
