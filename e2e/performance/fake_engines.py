"""Every engine of the scale test in one process: ``python -m performance.fake_engines``.

It listens on all addresses of its network namespace; the address that a request came to says which pod is meant.
Load is steady, with counters that grow by the clock: an operator that has settled has nothing to decide.
"""

import argparse
import asyncio
import json
import time

import uvloop
from aiohttp import web

from paternoster_contract.admin import LiveConfig, LiveConfigPatch
from paternoster_contract.http import paths
from paternoster_contract.labels import ADMIN_PORT
from paternoster_contract.stats import EngineState, EngineStats

CAPACITY = 16
"""Capacity that the fleets' ``engine.maxNumSeqs`` has."""
RUNNING = 6
REQUESTS_PER_SECOND = 2.0
TOKENS_PER_SECOND = 100.0
SUMMARY = "/summary"
"""What was asked of all engines together: not a path that engines have."""


class FakeEngines:
    """``live_cap`` of each address, and how often all were asked."""

    def __init__(self) -> None:
        self._caps: dict[str, int] = {}
        self._started = time.time()
        self._num_stats = 0
        self._num_patches = 0

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """A server without a router: a thousand requests come every second."""
        assert request.transport is not None
        address = request.transport.get_extra_info("sockname")[0]
        if request.path == paths.STATS:
            self._num_stats += 1
            return answer(self._stats(address))
        if request.path == paths.ADMIN_CONFIG and request.method == "PATCH":
            self._num_patches += 1
            self._caps[address] = LiveConfigPatch.model_validate_json(await request.read()).live_cap
            return answer(LiveConfig(capacity=CAPACITY, live_cap=self._caps[address], draining=False).model_dump())
        if request.path == SUMMARY:
            caps = sorted(set(self._caps.values()))
            return answer(
                {"stats": self._num_stats, "patches": self._num_patches, "engines": len(self._caps), "caps": caps}
            )
        return web.Response(status=404)

    def _stats(self, address: str) -> dict[str, object]:
        now = time.time()
        age = now - self._started
        finished, tokens = int(REQUESTS_PER_SECOND * age), int(TOKENS_PER_SECOND * age)
        return EngineStats.model_construct(
            instance=address,
            model="fake",
            state=EngineState.READY,
            started_at=self._started,
            time=now,
            last_tick_age_seconds=0.01,
            capacity=CAPACITY,
            live_cap=self._caps.get(address, CAPACITY),
            running=RUNNING,
            waiting=0,
            kv_block_size=32,
            kv_blocks=1000,
            kv_blocks_used=400,
            kv_blocks_cached=100,
            kv_projected_peak=0.6,
            requests_total=finished + RUNNING,
            requests_finished_total=finished,
            requests_rejected_total=0,
            requests_preempted_total=0,
            preemptions_total=0,
            prompt_tokens_total=tokens,
            cached_prompt_tokens_total=0,
            generation_tokens_total=tokens,
            computed_tokens_total=2 * tokens,
            recomputed_tokens_total=0,
            queue_seconds_total=0.01 * finished,
            queue_count_total=finished,
        ).__dict__


def answer(document: object) -> web.Response:
    return web.Response(text=json.dumps(document), content_type="application/json")


async def run(port: int) -> None:
    server = web.Server(FakeEngines().handle, access_log=None, keepalive_timeout=60)
    runner = web.ServerRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port, backlog=4096).start()
    print(json.dumps({"port": port}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=ADMIN_PORT)
    uvloop.run(run(parser.parse_args().port))
