import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from paternoster_contract.stats import EngineState, EngineStats


class FakeServer:
    """An OpenAI-compatible server whose answer depends on the first prompt token."""

    FINE, REFUSE, CUT, ERROR_EVENT, NO_REASON, HANG, UNEXPLAINED = range(7)
    TOKENS_PER_WORD = 2

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.clients: set[object] = set()
        """Address and port of each connection that brought a completion."""
        self.behaviour = self.FINE
        self.url = self.admin_url = ""
        self.tokenizes = self.admin = True
        self.live_cap = 5
        self.caps: list[int] = []
        self.preempts_above = 6
        """Live cap above which every request is counted as preempted."""
        self.finished = self.preempted = 0
        app = web.Application()
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/tokenize", self.tokenize)
        app.router.add_post("/v1/completions", self.completions)
        app.router.add_post("/v1/chat/completions", self.chat)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        admin = web.Application()
        admin.router.add_get("/stats", self.stats)
        admin.router.add_get("/admin/config", self.config)
        admin.router.add_patch("/admin/config", self.patch_config)
        self.admin_runner = web.AppRunner(admin)

    async def models(self, _: web.Request) -> web.Response:
        cards = [{"id": "tiny", "object": "model", "max_model_len": 256}, {"id": "other", "object": "model"}]
        return web.json_response({"object": "list", "data": cards})

    async def tokenize(self, request: web.Request) -> web.Response:
        if not self.tokenizes:
            return web.Response(status=404, text="Not Found")
        words = (await request.json())["prompt"].split()
        return web.json_response({"tokens": list(range(len(words))), "count": len(words)})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        assert request.transport is not None
        self.clients.add(request.transport.get_extra_info("peername"))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self.answer(request, body)
        finally:
            self.in_flight -= 1

    async def answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if self.behaviour == self.REFUSE:
            error = {"error": {"message": "queue is full", "type": "overloaded_error", "code": 503}}
            return web.json_response(error, status=503)
        if self.behaviour == self.UNEXPLAINED:
            return web.Response(status=502, text="Bad Gateway")
        if self.behaviour == self.HANG:
            await asyncio.sleep(30)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        count = body["max_tokens"]
        for i in range(count):
            last = i == count - 1 and self.behaviour != self.NO_REASON
            choice = {"index": 0, "text": f" é{i}", "finish_reason": "length" if last else None}
            await self.event(response, {"choices": [choice]}, split=i == 0)
        if self.behaviour == self.CUT:
            assert request.transport is not None
            request.transport.abort()
            return response
        if self.behaviour == self.ERROR_EVENT:
            await self.event(response, {"error": {"message": "the engine failed"}})
            return response
        self.finished += 1
        self.preempted += self.live_cap > self.preempts_above
        prompt = body["prompt"]
        usage = {
            "prompt_tokens": len(prompt) if isinstance(prompt, list) else self.TOKENS_PER_WORD * len(prompt.split()),
            "completion_tokens": count,
        }
        await self.event(response, {"choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        if self.behaviour == self.REFUSE:
            return web.json_response({"error": {"message": "queue is full"}}, status=503)
        response = web.StreamResponse()
        await response.prepare(request)
        for delta in ({"role": "assistant"}, {"content": "Hello"}, {"content": " there"}, {}):
            await self.event(response, {"choices": [{"index": 0, "delta": delta}]})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def config(self, _: web.Request) -> web.Response:
        if not self.admin:
            return web.Response(status=404, text="Not Found")
        return web.json_response({"capacity": 6, "live_cap": self.live_cap, "draining": False})

    async def patch_config(self, request: web.Request) -> web.Response:
        self.live_cap = (await request.json())["live_cap"]
        self.caps.append(self.live_cap)
        return await self.config(request)

    async def stats(self, _: web.Request) -> web.Response:
        nothing = dict.fromkeys(
            (name for name, field in EngineStats.model_fields.items() if field.annotation is int), 0
        )
        about = {
            "instance": "one", "model": "tiny", "state": EngineState.READY, "started_at": 0, "time": 1,
            "last_tick_age_seconds": 0, "capacity": 6, "live_cap": self.live_cap, "kv_block_size": 16, "kv_blocks": 8,
            "kv_projected_peak": 0, "queue_seconds_total": 0, "requests_finished_total": self.finished,
            "requests_preempted_total": self.preempted,
        }  # fmt: skip
        return web.json_response(EngineStats.model_validate({**nothing, **about}).model_dump(mode="json"))

    async def event(self, response: web.StreamResponse, chunk: dict[str, Any], *, split: bool = False) -> None:
        data = b": comment\r\n\r\ndata: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\r\n\r\n"
        if split:  # in the middle of a character and of a line end: the network cuts where it likes
            at = data.find("é".encode()) + 1
            for part in (data[:at], data[at:-3], data[-3:]):
                await response.write(part)
                await asyncio.sleep(0.005)
        else:
            await response.write(data)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    fake = FakeServer()
    for runner in (fake.runner, fake.admin_runner):
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url, fake.admin_url = (
        f"http://127.0.0.1:{runner.addresses[0][1]}" for runner in (fake.runner, fake.admin_runner)
    )
    yield fake
    for runner in (fake.runner, fake.admin_runner):
        await runner.cleanup()
