"""What a tenant's flood costs another tenant, before engines whose live cap gateways hold.

    python benchmarks gateway.tenant_flood --engines 2 --gateways 2

Gateways before engines that only wait: for the prompt, and for each token of the answer. So what differs from the quiet
tenant alone is the time in the gateways' queue. With one key for both tenants they are served first come first served,
as all requests were before the queue had an order by tenant. The least wait is until an answer of the same gateway's
ended, or one of any gateway's: without preemption, and without a place beyond the cap, none waits less. Balancers and
dispatchers run in virtual time, so that the machine's other work is in no figure; with --real they are processes, in
real time.
"""

import argparse
import asyncio
import selectors
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import aiohttp
from aiohttp import web

from harness.arguments import RunnerParser
from harness.load import open_session, running
from harness.results import write_json
from harness.servers import Server, gateway_server, local_url, route_to, started
from paternoster_contract.access import keys
from paternoster_contract.access.identity import Identity
from paternoster_contract.http.headers import CACHED_TOKENS, PROMPT_TOKENS
from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_e2e.fakes.engine import FakeEngine
from paternoster_gateway.admission.admission import admit_request
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import Queue, Result, Send
from paternoster_gateway.routing.prefix_routing import PromptTokens

T = TypeVar("T")
MODEL = "m"
CHAT = "/v1/chat/completions"
TENANTS = {"quiet-key": "quiet", "flood-key": "flood"}
WAYS = {"alone": None, "by tenant": "flood-key", "first come": "quiet-key"}
"""The key that the flood comes with."""
PROMPT = 20
"""Tokens."""
EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'


class WaitingEngine:
    """Answers any number of requests at once, each as slowly as a full engine would."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._ends: list[tuple[float, int]] = []
        """End of each request that runs, and the gateway that sent it."""
        self._random = Random("lengths")
        self.most = 0
        """Requests at once."""

    async def generate(self, gateway: int = 0) -> AsyncIterator[int]:
        """Yields 1 once a token is there."""
        tokens = self._random.randint(1, 2 * self._args.answer - 1)
        seconds = self._args.prompt_seconds + tokens * self._args.token_seconds
        running = asyncio.get_running_loop().time() + seconds, gateway
        self._ends.append(running)
        self.most = max(self.most, len(self._ends))
        try:
            await asyncio.sleep(self._args.prompt_seconds)
            for _ in range(tokens):
                yield 1
                await asyncio.sleep(self._args.token_seconds)
        finally:
            self._ends.remove(running)

    def find_ends(self, gateway: int) -> list[float]:
        """When the requests of one gateway's that run will have ended."""
        return [end for end, sender in self._ends if sender == gateway]

    async def answer(self, __: FakeEngine, request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": "text/event-stream", PROMPT_TOKENS: str(PROMPT), CACHED_TOKENS: "0"}
        response = web.StreamResponse(headers=headers)
        async for _ in self.generate():
            if not response.prepared:
                await response.prepare(request)
            await response.write(EVENT)
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def tenant_access() -> dict[str, Any]:
    """Fields of a route that both tenants have keys of."""
    digests = {keys.digest_key(key): Identity(tenant=tenant) for key, tenant in TENANTS.items()}
    return {"fleet": "fleet", "key_digests": list(digests), "identities": digests}


def build_route(args: argparse.Namespace, urls: Iterable[str]) -> ModelRoute:
    # Of a cap that gateways share, each has its part; here equal ones.
    bounds = {"max_in_flight": args.cap // args.gateways, "spare_in_flight": args.spare}
    return route_to(*urls, **tenant_access(), **bounds)


@dataclass(frozen=True)
class FirstToken:
    """How long one request waited, in seconds."""

    seconds: float
    least_wait: float = 0.0
    """Until an answer ended whose place its gateway may give away: without preemption none could wait less."""
    least_wait_anywhere: float = 0.0
    """Least wait, had any gateway's places been for it."""


Post = Callable[[str], Coroutine[Any, Any, FirstToken]]
"""Sends a request with a key through one of the gateways."""


def post_by_http(session: aiohttp.ClientSession, gateway: Server) -> Post:
    async def post(key: str) -> FirstToken:
        body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "a" * 80}]}
        began, first = time.monotonic(), 0.0
        headers = {"Authorization": f"Bearer {key}"}
        async with session.post(gateway.url + CHAT, json=body, headers=headers) as response:
            response.raise_for_status()
            async for line in response.content:
                if not first and line.startswith(b"data: {"):
                    first = time.monotonic() - began
        return FirstToken(first)

    return post


def find_next_end(args: argparse.Namespace, engines: Collection[WaitingEngine], gateway: int) -> float:
    """When the first answer of one gateway's ends; 0 where the gateway has a free place."""
    ends = [engine.find_ends(gateway) for engine in engines]
    return min(map(min, ends)) if all(len(each) >= args.cap // args.gateways for each in ends) else 0.0


async def send_through(
    dispatcher: Dispatcher, key: str, prompt_tokens: int, generate: Callable[[str], AsyncIterator[int]]
) -> float:
    """Seconds to the first token of a request that is sent as the proxy does, without HTTP.

    ``generate``: numbers of new tokens of the engine at a URL.
    """
    clock = asyncio.get_running_loop().time
    admission = admit_request(dispatcher.balancer.table, MODEL, keys.digest_key(key), time.time())
    request = dispatcher.open_request(admission, None, admission.queue_turn(0, 4 * prompt_tokens, None))
    began, first = clock(), 0.0
    try:
        while isinstance(decision := dispatcher.decide(request, admission), Queue):
            await dispatcher.await_wake(request, decision.until)
        assert isinstance(decision, Send)
        url = decision.replica.url
        async for tokens in generate(url):
            if not first:
                first = clock() - began
                dispatcher.report_result(request, url, Result.ANSWERED, tokens=PromptTokens(prompt_tokens, 0))
            dispatcher.count_output(request, tokens)
        dispatcher.end_attempt(request, url)
    finally:
        dispatcher.end_request(request)
    return first


async def send_steadily(count: int, interval: float, post: Callable[[int], Coroutine[Any, Any, T]]) -> list[T]:
    """The answers to ``count`` requests, one sent each ``interval`` seconds; ``post`` gets its number."""
    requests = []
    for number in range(count):
        requests.append(asyncio.create_task(post(number)))
        await asyncio.sleep(interval)
    return await asyncio.gather(*requests)


def post_by_dispatcher(
    args: argparse.Namespace, dispatcher: Dispatcher, number: int, engines: dict[str, WaitingEngine]
) -> Post:
    """Post like the proxy, without HTTP; ``number``: of the gateway."""

    async def post(key: str) -> FirstToken:
        clock = asyncio.get_running_loop().time
        ends = [find_next_end(args, engines.values(), gateway) for gateway in range(args.gateways)]
        waits = [max(0.0, end - clock()) for end in ends]
        first = await send_through(dispatcher, key, PROMPT, lambda url: engines[url].generate(number))
        return FirstToken(first, waits[number], min(waits))

    return post


class VirtualTime(asyncio.SelectorEventLoop):
    """Its time is that of the next event: nothing waits."""

    def __init__(self) -> None:
        self._now = 0.0
        loop = self

        class Selector(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
                loop._now += max(timeout or 0.0, 0.0)
                return super().select(0)

        super().__init__(Selector())

    def time(self) -> float:
        return self._now


def find_p99(values: list[float]) -> float:
    return round(sorted(values)[min(len(values) - 1, int(0.99 * len(values)))], 3)


async def measure_way(args: argparse.Namespace, gateways: list[Post], flood_key: str | None) -> dict[str, Any]:
    flooded: list[float] = []

    async def flood(post: Post, key: str) -> None:
        while True:
            flooded.append((await post(key)).seconds)

    floods = [] if flood_key is None else [flood(post, flood_key) for post in gateways for _ in range(args.flood)]
    async with running(*floods):
        await asyncio.sleep(4 * args.answer * args.token_seconds)
        answers = await send_steadily(
            args.requests, args.interval, lambda number: gateways[number % len(gateways)]("quiet-key")
        )
    times = [answer.seconds for answer in answers]
    return {
        "requests": len(times),
        "TTFT p50": round(statistics.median(times), 3),
        "TTFT p99": find_p99(times),
        "least wait p99": find_p99([answer.least_wait for answer in answers]),
        "least wait p99 anywhere": find_p99([answer.least_wait_anywhere for answer in answers]),
        "the flood's": round(statistics.median(flooded), 3) if flooded else None,
    }


async def measure_ways(args: argparse.Namespace, gateways: list[Post]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for way, flood_key in WAYS.items():
        results[way] = row = await measure_way(args, gateways, flood_key)
        row["over alone"] = round(row["TTFT p99"] / results["alone"]["TTFT p99"], 2)
        print(f"{way:<12}" + "  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return results


async def measure_virtually(args: argparse.Namespace) -> dict[str, Any]:
    engines = {local_url(port): WaitingEngine(args) for port in range(1, args.engines + 1)}
    table = RoutingTable(models={MODEL: build_route(args, engines)})
    posts = []
    for number in range(args.gateways):
        dispatcher = Dispatcher(Balancer(f"gateway-{number}"), asyncio.get_running_loop().time)
        dispatcher.change_table(table)
        posts.append(post_by_dispatcher(args, dispatcher, number, engines))
    results = await measure_ways(args, posts)
    results["most at an engine"] = [engine.most for engine in engines.values()]
    return results


async def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    engines = [WaitingEngine(args) for _ in range(args.engines)]
    async with AsyncExitStack() as stack:
        fakes = [await stack.enter_async_context(FakeEngine(behave=each.answer).listening()) for each in engines]
        routes = {MODEL: build_route(args, [fake.url for fake in fakes])}
        gateways = [gateway_server(folder, routes, name=f"gateway-{number}") for number in range(args.gateways)]
        stack.enter_context(started(gateways))
        session = await stack.enter_async_context(open_session())
        results = await measure_ways(args, [post_by_http(session, gateway) for gateway in gateways])
    results["most at an engine"] = [engine.most for engine in engines]
    return results


def main() -> int:
    parser = RunnerParser(__doc__, json="file for the results")
    parser.add_number("--engines", 2)
    parser.add_number("--gateways", 2)
    parser.add_number("--cap", 16, "requests at a time of an engine")
    parser.add_number("--spare", 1, "places beyond the cap for a sender with a small part", least=0)
    parser.add_number("--flood", 40, "clients of the flood at each gateway")
    parser.add_number("--requests", 1000, "of the quiet tenant")
    parser.add_number("--interval", 0.3, "seconds between two of them")
    parser.add_number("--answer", 40, "tokens, on average: from one to twice as many")
    parser.add_number("--prompt-seconds", 0.4)
    parser.add_number("--token-seconds", 0.05)
    parser.add_argument("--real", action="store_true", help="gateways as processes, in real time")
    args = parser.parse_args()
    if args.real:
        with tempfile.TemporaryDirectory() as folder:
            results = asyncio.run(measure(args, Path(folder)))
    else:
        with asyncio.Runner(loop_factory=VirtualTime) as runner:
            results = runner.run(measure_virtually(args))
    print(f"most at an engine: {results['most at an engine']}, cap {args.cap}")
    write_json(args.json, results)
    return 0
