"""Metrics as Prometheus reads them, made without holding up the event loop."""

import asyncio
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Metric, generate_latest


class _Collected:
    """What :func:`generate_latest` reads of a registry: families that were collected before."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


async def render_metrics(registry: CollectorRegistry) -> bytes:
    """Collect one family in a turn of the event loop, where what is counted changes, and write the text in a thread."""
    families = []
    for family in registry.collect():
        families.append(family)
        await asyncio.sleep(0)
    return await asyncio.to_thread(generate_latest, _Collected(families))
