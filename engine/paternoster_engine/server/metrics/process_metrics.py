"""Metrics of every Python process: its build, CPU, memory, open files and garbage collections."""

from prometheus_client import CollectorRegistry, GCCollector, Info, PlatformCollector, ProcessCollector

from paternoster_contract import __version__
from paternoster_contract.metrics import BUILD


def process_registry() -> CollectorRegistry:
    """A registry of its own for one engine; with several ranks, it is of the first one's process."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    Info(BUILD, "Version of the program.", registry=registry).info({"component": "engine", "version": __version__})
    return registry
