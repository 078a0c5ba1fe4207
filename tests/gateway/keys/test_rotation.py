"""Root keys are exchanged in files, at other moments here than there, while a client asks all the time."""

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, replace, route, stats, until

from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import (
    GATEWAY_TO_ENGINE,
    GATEWAY_TO_OPERATOR,
    derive_key,
    digest_key,
    matches_digest,
    read_bearer_key,
)
from paternoster_contract.routing import RoutingTable
from paternoster_e2e.fakes.engine import FakeEngine

FLEET = "5f0e7c3c-0b5e-4c39-9a7e-0c9f6f3f9b11"
PODS = 3


class Peer:
    """A server that checks the gateway's keys: those of a file, as an engine has them from its fleet's Secret."""

    def __init__(self, file: Path, purpose: str, subject: str = "") -> None:
        self._file, self._purpose, self._subject = file, purpose, subject
        self._keys = KeyFiles(file)
        self.refused = 0
        self.last = ""
        """The key that was taken last."""

    def key(self, root: str) -> str:
        return derive_key(root, self._purpose, self._subject)

    def write(self, *roots: str) -> None:
        replace(self._file, *map(self.key, roots))

    def accepts_all(self, *roots: str) -> bool:
        return self._keys.keys == tuple(map(self.key, roots))

    def admits(self, request: web.Request) -> bool:
        given = read_bearer_key(request.headers.get("Authorization", ""))
        if not matches_digest(given, self._keys.digests):
            self.refused += 1
            return False
        self.last = given
        return True


@asynccontextmanager
async def pod(name: str, peer: Peer) -> AsyncIterator[FakeEngine]:
    async def behave(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        if not peer.admits(request):
            return web.json_response({"error": {"message": "no"}}, status=401)
        choice = {"index": 0, "finish_reason": "stop", "text": "up"}
        document = {"id": "1", "object": "text_completion", "created": 0, "model": "m", "choices": [choice]}
        return web.json_response(document)

    async with FakeEngine(name, behave).listening() as engine:
        yield engine


class Operator:
    """Its ``/routes``, for gateways alone."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.table = RoutingTable()
        self.url = ""

    async def routes(self, request: web.Request) -> web.Response:
        if not self.peer.admits(request):
            return web.Response(status=401)
        return web.Response(text=self.table.model_dump_json())


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    made, app = Operator(Peer(tmp_path / "operator", GATEWAY_TO_OPERATOR)), web.Application()
    app.router.add_get("/routes", made.routes)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/routes"
    made.peer.write("old")
    yield made
    await runner.cleanup()


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[dict[Peer, FakeEngine]]:
    peers = [Peer(tmp_path / f"pod-{number}", GATEWAY_TO_ENGINE, FLEET) for number in range(PODS)]
    contexts = [pod(f"pod-{number}", peer) for number, peer in enumerate(peers)]
    for peer in peers:
        peer.write("old")
    yield {peer: await context.__aenter__() for peer, context in zip(peers, contexts, strict=True)}
    for context in contexts:
        await context.__aexit__(None, None, None)


@pytest.fixture
def gateway(operator: Operator, roots: Path) -> Iterator[Door]:
    """A process of its own, whose root keys are in ``roots``."""
    replace(roots, "old")
    command = [Path(sys.executable).with_name("paternoster"), "gateway", "--port=0", f"--routes={operator.url}"]
    process = subprocess.Popen([*command, f"--engine-key={roots}"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("listening on http://"), f"exit code {process.wait()}"
        yield Door(line.split()[-1], roots)
    finally:
        process.kill()
        process.wait()


class Traffic:
    """Requests one after another, from several at once; a failed one is not sent again."""

    def __init__(self, gateway: Door) -> None:
        self._client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="client", max_retries=0)
        self._stopped = False
        self.answered = 0

    async def more(self, count: int = 20) -> None:
        """Wait until ``count`` more are answered."""
        wanted = self.answered + count
        async with asyncio.timeout(60):
            while self.answered < wanted and not self._tasks.done():
                await asyncio.sleep(0.02)
        if self._tasks.done():
            self._tasks.result()

    async def __aenter__(self) -> "Traffic":
        self._tasks = asyncio.gather(*(self._send_requests() for _ in range(4)))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopped = True
        await self._tasks
        await self._client.close()

    async def _send_requests(self) -> None:
        while not self._stopped:
            answer = await self._client.completions.create(model="m", prompt="x" * random.choice([1, 100_000]))
            assert answer.choices[0].text == "up"
            self.answered += 1
            await asyncio.sleep(0.01)


async def read_models(client: aiohttp.ClientSession, gateway: Door) -> dict[str, Any]:
    """The gateway's numbers by model, none until it listens."""
    try:
        return await stats(client, gateway)
    except aiohttp.ClientConnectionError:
        return {}


async def test_no_request_fails_while_keys_are_exchanged(
    client: aiohttp.ClientSession, gateway: Door, operator: Operator, fleet: dict[Peer, FakeEngine], roots: Path
) -> None:
    async def settled(*keys: str) -> bool:
        """Every peer got the first of these keys last, and accepts them all."""
        await traffic.more(PODS)
        return all(peer.last == peer.key(keys[0]) and peer.accepts_all(*keys) for peer in peers)

    peers = [operator.peer, *fleet]
    operator.table.models["m"] = route(*fleet.values(), fleet=FLEET, key_digests=[digest_key("client")])
    await until(partial(read_models, client, gateway), lambda models: models.get("m", {}).get("fleet") == FLEET)
    async with Traffic(gateway) as traffic:
        # As in docs/keys.md: add, move to the front, remove; each step reaches each peer at a moment of its own.
        for now in (("old", "new"), ("new", "old"), ("new",)):
            steps = [partial(replace, roots, *now), *(partial(peer.write, *now) for peer in peers)]
            for step in random.sample(steps, len(steps)):
                step()
                await traffic.more()
            await until(partial(settled, *now), bool, 60)
        assert [peer.refused for peer in peers] == [0] * len(peers), "each step waited for the one before"

        # A process that has both is accepted by those that have either.
        replace(roots, "new", "newest")
        for peer in peers:
            await traffic.more()
            # The gateway, too, has to have read its file before any peer removes the key that it sent until now.
            await asyncio.sleep(1.5)
            peer.write("newest")
        await until(partial(settled, "newest"), bool, 60)
        refused = [peer.refused for peer in peers]
        assert min(refused) > 0, "each was asked with what it had dropped"
        await traffic.more(40)
        assert [peer.refused for peer in peers] == refused, "and from then on with what it took"
        replace(roots, "newest")
        await traffic.more()
    operator.table.models["another"] = route()
    await until(lambda: stats(client, gateway), lambda models: "another" in models)
