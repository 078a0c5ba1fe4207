"""Pods of other owners: made before the operator starts, and changed while it is measured."""

import asyncio
import itertools
import time
from collections.abc import Mapping

from tqdm import tqdm

from paternoster_operator.handlers import WATCHED
from performance.api import MERGE, Api, Document

PODS_PER_NAMESPACE = 500
POD_BYTES = 8 * 2**10
"""About the size of a pod with two containers, its managed fields and a status."""
CREATED_AT_ONCE = 32
PREFIX = "paternoster_operator_watch_"
CHILDREN = [kind for kind in WATCHED if kind != "LLMDeployment"]


def namespaces(count: int) -> list[str]:
    """Namespaces of ``count`` foreign pods."""
    return sorted({namespace(number) for number in range(count)})


def namespace(number: int) -> str:
    return f"foreign-{number // PODS_PER_NAMESPACE:02d}"


def pod(number: int) -> Document:
    """A pod that is not to be scheduled, labelled as a Helm chart labels its own."""
    labels = {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "shop"}
    metadata = {"name": f"shop-{number:05d}", "namespace": namespace(number), "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "annotations": {"filler": "x" * POD_BYTES}},
        "spec": {
            "schedulingGates": [{"name": "example.com/never"}],
            "containers": [{"name": "shop", "image": "shop:1"}],
        },
    }


async def create(api: Api, count: int) -> None:
    """All pods, a few at a time."""
    numbers = iter(tqdm(range(count), desc="foreign pods"))

    async def work() -> None:
        for number in numbers:
            await api.send("POST", f"/api/v1/namespaces/{namespace(number)}/pods", pod(number))

    await asyncio.gather(*(work() for _ in range(CREATED_AT_ONCE)))


async def change(api: Api, count: int, per_second: float) -> None:
    """Change one pod after the other, ``per_second``, until cancelled."""
    begun = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for made in itertools.count():
            number = made % count
            path = f"/api/v1/namespaces/{namespace(number)}/pods/shop-{number:05d}"
            changed = {"metadata": {"annotations": {"changed": str(made)}}}
            tasks.create_task(api.send("PATCH", path, changed, MERGE))
            await asyncio.sleep(max(0.0, begun + (made + 1) / per_second - time.monotonic()))


def count_received(samples: Mapping[str, float]) -> dict[str, float]:
    """Objects of the children's kinds that the operator received by lists and by watches, and bytes, by kind."""
    found = {}
    for kind in CHILDREN:
        of_kind = {name: value for name, value in samples.items() if f'kind="{kind}"' in name}
        objects = {name: value for name, value in of_kind.items() if name.startswith(f"{PREFIX}objects_total{{")}
        listed = sum(value for name, value in objects.items() if 'event="LISTED"' in name)
        found[f"{kind} listed"] = listed
        found[f"{kind} events"] = sum(objects.values()) - listed
        found[f"{kind} bytes"] = sum(
            value for name, value in of_kind.items() if name.startswith(f"{PREFIX}bytes_total{{")
        )
    return found
