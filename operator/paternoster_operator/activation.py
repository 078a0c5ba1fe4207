"""Waking fleets that have no replica: a gateway's held requests are looked for more often than a fleet is looked at."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from paternoster_operator.api.v1alpha1 import AutoscalingMode
from paternoster_operator.autoscaling.decision import REPLICAS
from paternoster_operator.cluster.port import Key
from paternoster_operator.fleet import Fleet

POLL_SECONDS = 1.0
"""One question to each gateway, however many fleets sleep; none while all are awake."""


async def wake_fleets(
    fleets: Mapping[Key, Fleet], held: Callable[[], Awaitable[Mapping[str, int]]], enqueue: Callable[[Key], None]
) -> None:
    """Until cancelled: enqueue each of ``fleets`` that sleeps while requests for it are ``held`` (by uid)."""
    while True:
        asleep = {key: uid for key, fleet in fleets.items() if (uid := _uid_asleep(fleet)) is not None}
        if asleep:
            waiting = await held()
            for key, uid in asleep.items():
                if waiting.get(uid):
                    enqueue(key)
        await asyncio.sleep(POLL_SECONDS)


def _uid_asleep(fleet: Fleet) -> str | None:
    """Uid of the fleet, where a request would wake it."""
    resource, replicas = fleet.resource, fleet.memory.states.targets.get(REPLICAS)
    if replicas is None or replicas > 0 or resource.spec.paused:
        return None
    auto = resource.spec.autoscaling
    if auto is None or auto.mode is not AutoscalingMode.AUTO or not auto.scale_to_zero.enabled:
        return None
    return resource.metadata.uid
