"""Probes as a kubelet runs them: startup first, then readiness and liveness side by side."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from paternoster_contract.supervise import supervise_task

STARTUP_PERIOD_SECONDS = 0.25
"""Asking a process on this machine costs nothing, so that a started one is seen at once."""


@dataclass(frozen=True, slots=True)
class Probe:
    """An HTTP GET again and again; any status below 400 is a success."""

    path: str
    period_seconds: float = 1.0
    timeout_seconds: float = 1.0
    failure_threshold: int = 3

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "Probe":
        """From a container's probe."""
        return cls(spec["httpGet"]["path"], spec["periodSeconds"], spec["timeoutSeconds"], spec["failureThreshold"])


@dataclass(frozen=True, slots=True)
class Probes:
    """The three of a container."""

    startup: Probe
    readiness: Probe
    liveness: Probe

    @classmethod
    def from_container(cls, container: Mapping[str, Any]) -> "Probes":
        return cls(*(Probe.from_spec(container[f"{kind}Probe"]) for kind in ("startup", "readiness", "liveness")))


Check = Callable[[Probe], Awaitable[bool]]


async def run_probes(probes: Probes, check: Check, on_ready: Callable[[bool], None]) -> str:
    """Probe until the program has to be killed, and return why; ``on_ready`` hears each change of readiness."""
    seconds = probes.startup.period_seconds * probes.startup.failure_threshold
    deadline = time.monotonic() + seconds
    while not await check(probes.startup):
        if time.monotonic() >= deadline:
            return f"did not start within {seconds:g} s"
        await asyncio.sleep(STARTUP_PERIOD_SECONDS)
    readiness = supervise_task(lambda: _watch_readiness(probes.readiness, check, on_ready), "readiness-probe")
    try:
        failures = 0
        while failures < probes.liveness.failure_threshold:
            await asyncio.sleep(probes.liveness.period_seconds)
            failures = 0 if await check(probes.liveness) else failures + 1
        return f"{failures} liveness probes in a row failed"
    finally:
        readiness.cancel()
        await asyncio.gather(readiness, return_exceptions=True)


def http_check(session: aiohttp.ClientSession, base_url: str) -> Check:
    """The check that asks the program at ``base_url``."""

    async def run_check(probe: Probe) -> bool:
        try:
            timeout = aiohttp.ClientTimeout(total=probe.timeout_seconds)
            async with session.get(base_url + probe.path, timeout=timeout, allow_redirects=False) as response:
                return response.status < 400
        except Exception:
            # Whatever an answer raises, it is no success: a probe that ends would leave its program without one.
            return False

    return run_check


async def _watch_readiness(probe: Probe, check: Check, on_ready: Callable[[bool], None]) -> None:
    ready, failures = False, 0
    while True:
        failures = 0 if await check(probe) else failures + 1
        if failures == 0 and not ready:
            ready = True
            on_ready(ready)
        elif failures >= probe.failure_threshold and ready:
            ready = False
            on_ready(ready)
        await asyncio.sleep(probe.period_seconds)
