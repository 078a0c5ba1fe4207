"""How many requests of a fleet an engine gets that claims to hold every prompt, by a real gateway, beside three honest.

    python benchmarks hostile.neighbours --only "confirmed claims" "denied claims"

Engines wait for as long as they would compute. A row passes where the claiming engine has at most twice an equal
share of the second half of the requests.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
from aiohttp import web

from gateway.restarted_gateway import publish_chains
from harness.servers import gateway_server, route_to, started
from hostile.bodies import COMPLETION
from paternoster_contract.http import paths
from paternoster_contract.http.headers import CACHED_TOKENS, PROMPT_TOKENS
from paternoster_contract.text_chains.canonical_text import canonical_text
from paternoster_contract.text_chains.chain import chain_scope, text_chain
from paternoster_e2e.fakes.engine import FakeEngine
from paternoster_engine.server.text_chains.feed import TextChainFeed

KINDS = {"confirmed claims": True, "denied claims": False}
"""Whether the claiming engine's headers confirm what it claims, or state that it had nothing, by name."""
MODEL = "claimed"
ENGINES = 4
REQUESTS = 300
MOST_SHARES = 2.0
"""Equal shares of the requests that claims may win."""
PROMPT_BYTES, SHARED_BYTES = 4096, 3072
BEGINNINGS = 40
SHARED_PART = 0.6
"""Share of prompts that share a beginning with others."""
BYTES_PER_TOKEN = 4
FIRST_SECONDS, SECONDS_PER_TOKEN = 0.01, 1e-4


def make_prompts() -> list[str]:
    """Some share a beginning with others; the same ones in each run."""
    chance = Random(3)
    beginnings = [chance.randbytes(SHARED_BYTES // 2).hex() for _ in range(BEGINNINGS)]
    shared = [chance.choice(beginnings) if chance.random() < SHARED_PART else "" for _ in range(REQUESTS)]
    return [text + chance.randbytes((PROMPT_BYTES - len(text)) // 2).hex() for text in shared]


def find_pieces(prompt: str) -> dict[int, int]:
    """Tokens of the prompt up to the end of each piece, by its digest."""
    text = canonical_text(COMPLETION, {"model": MODEL, "prompt": prompt})
    assert text is not None
    return {piece.digest: piece.end // BYTES_PER_TOKEN for piece in text_chain(chain_scope(MODEL), text)}


class ComputingEngine:
    """Takes a time for each token of a prompt that it has not had, and publishes those that it has."""

    def __init__(self, number: int, claims: Sequence[str] = (), *, confirms: bool = False) -> None:
        """``claims``: prompts that it publishes without having them; it computes all of each prompt then."""
        self._feed = TextChainFeed(f"{number:032x}", MODEL, isolates_tenants=False, block_size=1)
        self._claims, self._confirms = bool(claims), confirms
        self._feed.publish(False, {digest: at for prompt in claims for digest, at in find_pieces(prompt).items()})
        self._feed.flush()
        self.url = ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        engine = FakeEngine(behave=self._answer, answers={paths.TEXT_CHAINS: publish_chains(self._feed)})
        async with engine.listening():
            self.url = engine.url
            try:
                yield
            finally:
                self._feed.close()

    async def _answer(self, _: FakeEngine, request: web.Request) -> web.Response:
        prompt = (await request.json())["prompt"]
        pieces, tokens = find_pieces(prompt), len(prompt) // BYTES_PER_TOKEN
        cached = 0 if self._claims else max((pieces[each] for each in pieces.keys() & self._feed.resident), default=0)
        await asyncio.sleep(FIRST_SECONDS + SECONDS_PER_TOKEN * (tokens - cached))
        if not self._claims:
            self._feed.publish(False, pieces)
        reported = tokens if self._claims and self._confirms else cached
        headers = {PROMPT_TOKENS: str(tokens), CACHED_TOKENS: str(reported)}
        return web.json_response({"object": "text_completion", "choices": [], "engine": self.url}, headers=headers)


async def send_prompts(url: str, prompts: Sequence[str]) -> list[str]:
    """The engine that answered each of ``prompts``, sent one after another: no load decides between engines."""
    answered = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60), raise_for_status=True) as session:
        for prompt in prompts:
            async with session.post(url + COMPLETION, json={"model": MODEL, "prompt": prompt}) as response:
                answered.append((await response.json())["engine"])
    return answered


async def find_share(*, confirms: bool) -> float:
    """Part of the second half of the requests that the claiming engine gets."""
    prompts = make_prompts()
    async with AsyncExitStack() as stack:
        engines = [
            ComputingEngine(number, prompts if number == 0 else (), confirms=confirms) for number in range(ENGINES)
        ]
        for engine in engines:
            await stack.enter_async_context(engine.serve())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gateway = gateway_server(folder, {MODEL: route_to(*(engine.url for engine in engines))})
        stack.enter_context(started([gateway]))
        sent = Counter((await send_prompts(gateway.url, prompts))[REQUESTS // 2 :])
    return sent[engines[0].url] / sent.total()


def measure_claims(kind: str) -> dict[str, Any]:
    """A row of the table, with the share in place of what a client felt."""
    share = asyncio.run(find_share(confirms=KINDS[kind]))
    row = {"name": f"{kind} of every prompt, by 1 engine of {ENGINES}", "share": share, "measures": {}}
    failed = {"refused": 0, "refused_alone": 0, "refusals": [], "answers": {}}
    return row | failed | {"passes": share <= MOST_SHARES / ENGINES}
