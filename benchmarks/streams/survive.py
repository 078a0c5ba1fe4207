"""Answers of all kinds while engines are killed and stopped: each must be equal to its undisturbed twin.

    python benchmarks streams.survive --engines 4 --gateways 2 --kills 100 --stops 20 --json result.json

Engines run batch-invariant, so that an answer is the same whatever else is computed beside it. They are forks of one
process that has imported everything, so that they are back in seconds, and the routing table states that one is down a
second after it was killed. Half of the engines are broken at a time, at the most. The result is written after each
fault. Exit code 1 where an answer had an error, or its content was not its twin's.
"""

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.forked import Forking
from harness.load import open_session
from harness.results import write_json
from harness.servers import Server
from hostile.faults import stop_and_continue
from hostile.shared_fleets import CHAT, KEYS, Fleet, fleet_of_engines, mark_ready

STREAMS = 8
"""At once, whole answers among them."""
STOPPED_SECONDS = 14
"""Longer than a gateway needs to leave a stopped engine."""
TABLE_SECONDS = 1.0
"""Until the routing table states that an engine was killed."""
EXACT = ("--batch-invariant", "--reasoning-parser", "think")
QUESTION = {"messages": [{"role": "user", "content": "Tell me a story about a lift that never stops, and a boy."}]}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
LONG = {"max_tokens": 120, "min_tokens": 60}
PERSON = {
    "type": "object", "required": ["name", "age", "about"], "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "maxLength": 40}, "age": {"type": "integer"},
        "about": {"type": "string", "minLength": 60, "maxLength": 200},
    },
}  # fmt: skip
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
USAGE = {"stream_options": {"include_usage": True}}
KINDS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "greedy": ("/v1/chat/completions", QUESTION | LONG | USAGE | {"temperature": 0}),
    "seeded": ("/v1/chat/completions", QUESTION | LONG | USAGE | {"seed": 7}),
    "four choices": ("/v1/chat/completions", QUESTION | LONG | USAGE | {"seed": 3, "n": 4}),
    "log probabilities": (
        "/v1/chat/completions", QUESTION | LONG | USAGE | {"seed": 5, "logprobs": True, "top_logprobs": 3},
    ),
    "penalties and stop": (
        "/v1/chat/completions",
        QUESTION | LONG | USAGE | {"seed": 5, "frequency_penalty": 0.6, "repetition_penalty": 1.1, "stop": ["end"]},
    ),
    "schema": (
        "/v1/chat/completions",
        QUESTION | USAGE
        | {"seed": 9, "max_tokens": 200, "response_format": FORMAT},
    ),
    "required tool": (
        "/v1/chat/completions",
        QUESTION | USAGE
        | {"seed": 9, "max_tokens": 120, "tool_choice": "required",
           "tools": [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]},
    ),
    "reasoning": (
        "/v1/chat/completions",
        {"messages": [*QUESTION["messages"], {"role": "assistant", "content": "<think>"}]} | LONG | USAGE
        | {"continue_final_message": True, "add_generation_prompt": False, "thinking_token_budget": 30, "seed": 6},
    ),
    "completions with echo": (
        "/v1/completions", LONG | USAGE | {"prompt": "Once upon a time", "echo": True, "logprobs": 0, "seed": 4},
    ),
    "responses": ("/v1/responses", {"input": "Tell me of a lift.", "max_output_tokens": 120, "temperature": 0}),
    "messages": ("/v1/messages", QUESTION | {"max_tokens": 120, "temperature": 0}),
    "whole": ("/v1/chat/completions", QUESTION | LONG | {"stream": False, "seed": 7, "n": 2}),
    "whole with echo": (
        "/v1/completions",
        LONG | {"stream": False, "prompt": "Once upon a time", "echo": True, "logprobs": 0, "seed": 4},
    ),
}  # fmt: skip
"""Answers of several seconds on a busy core; those that are not streamed are whole ones."""


@dataclass
class Result:
    """``faults`` is empty where every answer was its twin."""

    streams: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    """That ended, by kind."""
    kills: int = 0
    stops: int = 0
    seconds: float = 0.0
    continued: dict[str, float] = field(default_factory=dict)
    """The gateways' count of streams that went on, by reason."""
    retried: float = 0
    """The gateways' count of requests that were sent again before a byte of their answer."""
    longest_gap: float = 0.0
    """Seconds between two pieces of one stream."""
    faults: list[str] = field(default_factory=list)


def content_of(text: str) -> Any:
    """What a client makes of an answer: frames without ids and times, texts joined choice by choice."""
    joined: dict[str, Any] = {}
    if text.startswith("{"):
        _join(joined, "", json.loads(text))
        return joined
    for event in text.split("\n\n"):
        data = next((line[6:] for line in event.splitlines() if line.startswith("data: ")), "")
        if data and data != "[DONE]":
            _join(joined, "", json.loads(data))
    return joined


SKIPPED = frozenset({"id", "created", "created_at", "completed_at", "item_id", "call_id", "sequence_number",
                     "prompt_tokens_details", "input_tokens_details", "cached_tokens", "cache_read_input_tokens",
                     "input_tokens", "system_fingerprint"})  # fmt: skip
"""Drawn for each call, or of the cache; the sum of prompt tokens is compared."""


def _join(joined: dict[str, Any], path: str, value: Any) -> None:
    match value:
        case dict():
            place = path + f"[{value['index']}]" if isinstance(value.get("index"), int) else path
            if not path and isinstance(kind := value.get("type"), str):
                place += f"<{kind}>"  # of an event; that of a part of it comes with the first piece alone
            for name, inner in value.items():
                if name not in SKIPPED:
                    _join(joined, f"{place}.{name}", inner)
        case list():
            for inner in value:
                _join(joined, path, inner)
        case str():
            joined[path] = joined.get(path, "") + value if _grows(path) else value
        case float() | int() if "logprob" in path:
            joined[path] = [*(joined.get(path) or []), value]
        case float() | int():
            joined[path] = value
        case _:
            joined.setdefault(path, value)


def _grows(path: str) -> bool:
    return path.rsplit(".", 1)[-1] in ("content", "text", "delta", "arguments", "partial_json", "reasoning", "token")


class Clients:
    """Reads answers through the gateways, in turn."""

    def __init__(self, fleet: Fleet, session: aiohttp.ClientSession, result: Result) -> None:
        self._fleet = fleet
        self._session = session
        self._result = result
        self._turn = 0
        self.twins: dict[str, Any] = {}

    async def read_answer(self, kind: str) -> Any:
        path, body = KINDS[kind]
        headers = {"Authorization": f"Bearer {KEYS['quiet']}", "anthropic-version": "2023-06-01"}
        body = {"model": CHAT, "stream": True} | body
        self._turn += 1
        gateway = self._fleet.gateways[self._turn % len(self._fleet.gateways)]
        pieces, last = [], time.monotonic()
        async with self._session.post(gateway.url + path, json=body, headers=headers) as response:
            async for piece in response.content.iter_any():
                now = time.monotonic()
                if body["stream"]:
                    self._result.longest_gap = max(self._result.longest_gap, now - last)
                last = now
                pieces.append(piece)
            text = b"".join(pieces).decode()
            if response.status != 200:
                raise RuntimeError(f"{kind}: {response.status}: {text[:300]}")
        if '"error":{"' in text.replace(" ", ""):
            raise RuntimeError(f"{kind}: {text[-400:]}")
        return content_of(text)

    async def compare(self, kind: str) -> None:
        try:
            content = await self.read_answer(kind)
        except (aiohttp.ClientError, RuntimeError, ValueError) as error:
            self._result.faults.append(f"{kind}: {error}")
            return
        self._result.streams[kind] += 1
        if content != self.twins[kind]:
            twin = self.twins[kind]
            differing = [path for path in {*content, *twin} if content.get(path) != twin.get(path)]
            shown = {path: (content.get(path), twin.get(path)) for path in sorted(differing)[:2]}
            self._result.faults.append(f"{kind} differs at {differing[:4]}: {str(shown)[:600]}")


async def run(
    folder: Path,
    kills: int,
    stops: int,
    seed: int = 0,
    num_engines: int = 2,
    num_gateways: int = 1,
    json_file: Path | None = None,
) -> Result:
    """Faults of up to half of the engines at once until there were as many, under load."""
    result, rng = Result(), random.Random(seed)
    with Forking() as forking, fleet_of_engines(folder, {}, EXACT, num_engines, num_gateways, forking) as fleet:
        async with open_session() as session:
            clients = Clients(fleet, session, result)
            for kind in tqdm(KINDS, desc="undisturbed twins"):
                clients.twins[kind] = await clients.read_answer(kind)
            result.longest_gap, started, over = 0.0, time.monotonic(), asyncio.Event()
            faults = ["kill"] * kills + ["stop"] * stops
            rng.shuffle(faults)
            remaining, intact = iter(tqdm(faults, desc="faults")), set(range(num_engines))

            async def load(number: int) -> None:
                kinds = sorted(KINDS)
                while not over.is_set():
                    await clients.compare(kinds[number % len(kinds)])
                    number += 1

            async def kill_engine(engine: Server) -> None:
                engine.end()
                await asyncio.sleep(TABLE_SECONDS)
                mark_ready(folder, engine, False)
                engine.start()
                await asyncio.to_thread(engine.wait_ready)
                mark_ready(folder, engine, True)

            async def break_engines() -> None:
                for fault in remaining:
                    await asyncio.sleep(rng.uniform(0.5, 4))
                    number = rng.choice(sorted(intact))
                    intact.discard(number)
                    if fault == "kill":
                        await kill_engine(fleet.engines[number])
                        result.kills += 1
                    else:
                        await stop_and_continue(fleet.engines[number], STOPPED_SECONDS)
                        result.stops += 1
                    intact.add(number)
                    await record()

            async def record() -> None:
                result.seconds = round(time.monotonic() - started, 1)
                result.continued, result.retried = {}, 0
                for gateway in fleet.gateways:
                    async with session.get(f"{gateway.url}/metrics") as response:
                        _count(result, (await response.text()).splitlines())
                write_json(json_file, result)

            async def break_all() -> None:
                await asyncio.gather(*(break_engines() for _ in range(max(1, num_engines // 2))))
                over.set()

            async with asyncio.TaskGroup() as tasks:
                for number in range(STREAMS):
                    tasks.create_task(load(number))
                tasks.create_task(break_all())
            await record()
    return result


def _count(result: Result, lines: Sequence[str]) -> None:
    """Add what the ``lines`` of a gateway's metrics count."""
    for line in lines:
        if line.startswith("paternoster_gateway_continued_streams_total{"):
            reason = line.split('reason="')[1].split('"')[0]
            result.continued[reason] = result.continued.get(reason, 0) + float(line.split()[-1])
        elif line.startswith("paternoster_gateway_retries_total{"):
            result.retried += float(line.split()[-1])


def main() -> int:
    parser = RunnerParser(__doc__, json="where the result is written")
    parser.add_number("--kills", 20, least=0)
    parser.add_number("--stops", 4, least=0)
    parser.add_number("--engines", 2)
    parser.add_number("--gateways", 1)
    parser.add_number("--seed", 0, least=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(
            run(Path(folder), args.kills, args.stops, args.seed, args.engines, args.gateways, args.json)
        )
    console = Console()
    console.print(
        f"{result.kills} kills and {result.stops} stops in {result.seconds} s: {sum(result.streams.values())} answers, "
        f"{sum(result.continued.values()):.0f} times one went on at another engine, {result.retried:.0f} were sent "
        f"again before a byte of their answer, longest gap "
        f"{result.longest_gap:.1f} s, {len(result.faults)} were not their twins"
    )
    console.print(result.streams)
    for fault in result.faults[:20]:
        console.print(fault, markup=False)
    return 1 if result.faults else 0
