"""An engine without a model: the probes, the numbers and the drain of a real one, and faults on demand.

    fake_engine.py [ignored flags] --fd DESCRIPTOR --admin-fd DESCRIPTOR --admin-keys FOLDER

Environment: CRASH=text ends it at start with that text; DEAF=1 ignores SIGTERM; FORK=1 starts a child of its own;
SLOW_START=seconds until it is ready; DRAIN=seconds it takes to end; UNREADY=file and SICK=file make it unready and
unhealthy while that file is there.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from aiohttp import web

STARTED = time.monotonic()
NAMES = [
    "kv_blocks_used",
    "kv_blocks_cached",
    "kv_projected_peak",
    "requests_total",
    "requests_finished_total",
    "requests_rejected_total",
    "requests_preempted_total",
    "preemptions_total",
    "prompt_tokens_total",
    "cached_prompt_tokens_total",
    "generation_tokens_total",
    "computed_tokens_total",
    "recomputed_tokens_total",
    "queue_seconds_total",
    "queue_count_total",
    "running",
    "waiting",
    "last_tick_age_seconds",
]


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int)
    parser.add_argument("--admin-fd", type=int)
    parser.add_argument("--admin-keys", type=Path)
    args, others = parser.parse_known_args()
    print("pid", os.getpid(), flush=True)
    print("flags", json.dumps(others), flush=True)
    print(
        "environment",
        json.dumps({name: os.environ[name] for name in os.environ if name.startswith(("P", "HF_HUB"))}),
        flush=True,
    )
    if "CRASH" in os.environ:
        sys.exit(os.environ["CRASH"])
    if "FORK" in os.environ:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(600)")
        print("child", child.pid, flush=True)
    ending = asyncio.Event()
    config = {"capacity": 8, "live_cap": 8, "draining": False}

    def is_set(variable: str) -> bool:
        return variable in os.environ and Path(os.environ[variable]).exists()

    async def health(_: web.Request) -> web.Response:
        return web.Response(status=503 if is_set("SICK") else 200)

    async def ready(_: web.Request) -> web.Response:
        started = time.monotonic() - STARTED >= float(os.environ.get("SLOW_START", "0"))
        return web.Response(status=200 if started and not is_set("UNREADY") and not ending.is_set() else 503)

    async def stats(_: web.Request) -> web.Response:
        numbers = dict.fromkeys(NAMES, 0)
        numbers |= {"capacity": 8, "live_cap": config["live_cap"], "kv_block_size": 16, "kv_blocks": 100}
        named = {"instance": str(os.getpid()), "model": "fake", "state": "ready"}
        return web.json_response({**numbers, **named, "started_at": time.time(), "time": time.time()})

    async def configure(request: web.Request) -> web.Response:
        keys = [key for file in args.admin_keys.iterdir() for key in file.read_text().splitlines()]
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in keys:
            return web.Response(status=401)
        if request.method == "PATCH":
            config.update(await request.json())
        return web.json_response(config)

    app = web.Application()
    app.add_routes([web.get("/health", health), web.get("/ready", ready), web.get("/stats", stats)])
    app.add_routes([web.route(method, "/admin/config", configure) for method in ("GET", "PATCH")])
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, (lambda: None) if "DEAF" in os.environ else ending.set)
    runner = web.AppRunner(app)
    await runner.setup()
    for descriptor in (args.fd, args.admin_fd):
        if descriptor is not None:
            await web.SockSite(runner, socket.socket(fileno=descriptor)).start()
    await ending.wait()
    print("draining", flush=True)
    await asyncio.sleep(float(os.environ.get("DRAIN", "0")))
    print("drained", flush=True)
    os._exit(0)


asyncio.run(main())
