"""Every engine of the scale test in one process: ``python -m performance.fake_engines``.

It listens on all addresses of its network namespace; the address that a request came to says which pod is meant.
Load is steady, with counters that grow by the clock: an operator that has settled has nothing to decide.
"""

import asyncio
import json
import time
from typing import Any

import uvloop
from aiohttp import web

from paternoster_contract.labels import ADMIN_PORT
from paternoster_e2e.fakes.engine import FakeEngine, FakeEngines, serve

CAPACITY = 16
"""Capacity that the fleets' ``engine.maxNumSeqs`` has."""
RUNNING = 6
REQUESTS_PER_SECOND = 2.0
TOKENS_PER_SECOND = 100.0
SUMMARY = "/summary"
"""What was asked of all engines together: not a path that engines have."""
STARTED = time.time()


class LoadedEngine(FakeEngine):
    """An engine under a steady load."""

    def report(self) -> dict[str, Any]:
        age = time.time() - STARTED
        finished, tokens = int(REQUESTS_PER_SECOND * age), int(TOKENS_PER_SECOND * age)
        return super().report() | {
            "started_at": STARTED,
            "last_tick_age_seconds": 0.01,
            "running": RUNNING,
            "kv_blocks": 1000,
            "kv_blocks_used": 400,
            "kv_blocks_cached": 100,
            "kv_projected_peak": 0.6,
            "requests_total": finished + RUNNING,
            "requests_finished_total": finished,
            "prompt_tokens_total": tokens,
            "generation_tokens_total": tokens,
            "computed_tokens_total": 2 * tokens,
            "queue_seconds_total": 0.01 * finished,
            "queue_count_total": finished,
        }


class FleetEngines(FakeEngines):
    """Engines of all fleets, and what they were asked together."""

    def __init__(self) -> None:
        super().__init__(lambda address: LoadedEngine(address, capacity=CAPACITY, live_cap=CAPACITY))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path != SUMMARY:
            return await super().handle(request)
        patched = [engine for engine in self.at.values() if engine.patches]
        return web.json_response(
            {
                "stats": sum(engine.looks for engine in self.at.values()),
                "patches": sum(len(engine.patches) for engine in patched),
                "engines": len(patched),
                "caps": sorted({engine.live_cap for engine in patched}),
            }
        )


async def run() -> None:
    await serve(FleetEngines().handle, "0.0.0.0", [ADMIN_PORT])
    print(json.dumps({"port": ADMIN_PORT}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(run())
