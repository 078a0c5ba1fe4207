"""Streams of all kinds while engines are killed and stopped: each must be equal to its undisturbed twin.

    python benchmarks streams.survive --kills 100 --stops 20 --json result.json

Engines run batch-invariant, so that a stream is the same whatever else is computed beside it. Exit code 1
where a stream had an error, or its content was not its twin's.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from tqdm import tqdm

from hostile.faults import kill_and_restart, stop_and_continue
from hostile.fleet import Fleet
from hostile.shared_fleets import CHAT, KEYS, fleet_of_engines

STREAMS = 8
"""At once."""
STOPPED_SECONDS = 14
"""Longer than a gateway needs to leave a stopped engine."""
EXACT = ("--batch-invariant",)
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
    "completions with echo": (
        "/v1/completions", LONG | USAGE | {"prompt": "Once upon a time", "echo": True, "logprobs": 0, "seed": 4},
    ),
    "responses": ("/v1/responses", {"input": "Tell me of a lift.", "max_output_tokens": 120, "temperature": 0}),
    "messages": ("/v1/messages", QUESTION | {"max_tokens": 120, "temperature": 0}),
}  # fmt: skip
"""Streams of ten to fifteen seconds on a busy core."""


@dataclass
class Result:
    """``faults`` is empty where every stream was its twin."""

    streams: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    """That ended, by kind."""
    kills: int = 0
    stops: int = 0
    seconds: float = 0.0
    continued: dict[str, float] = field(default_factory=dict)
    """The gateway's count of streams that went on, by reason."""
    longest_gap: float = 0.0
    """Seconds between two pieces of one stream."""
    faults: list[str] = field(default_factory=list)


def content_of(text: str) -> Any:
    """What a client makes of a stream: frames without ids and times, texts joined choice by choice."""
    joined: dict[str, Any] = {}
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
            if isinstance(kind := value.get("type"), str):
                place += f"<{kind}>"
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
    """Streams through one gateway."""

    def __init__(self, fleet: Fleet, session: aiohttp.ClientSession, result: Result) -> None:
        self._fleet = fleet
        self._session = session
        self._result = result
        self.twins: dict[str, Any] = {}

    async def stream(self, kind: str) -> Any:
        path, body = KINDS[kind]
        headers = {"Authorization": f"Bearer {KEYS['quiet']}", "anthropic-version": "2023-06-01"}
        body = {"model": CHAT, "stream": True} | body
        pieces, last = [], time.monotonic()
        async with self._session.post(self._fleet.gateway.url + path, json=body, headers=headers) as response:
            async for piece in response.content.iter_any():
                now = time.monotonic()
                self._result.longest_gap, last = max(self._result.longest_gap, now - last), now
                pieces.append(piece)
            text = b"".join(pieces).decode()
            if response.status != 200:
                raise RuntimeError(f"{kind}: {response.status}: {text[:300]}")
        if '"error":{"' in text.replace(" ", ""):
            raise RuntimeError(f"{kind}: {text[-400:]}")
        return content_of(text)

    async def compare(self, kind: str) -> None:
        try:
            content = await self.stream(kind)
        except (aiohttp.ClientError, RuntimeError, ValueError) as error:
            self._result.faults.append(f"{kind}: {error}")
            return
        self._result.streams[kind] += 1
        if content != self.twins[kind]:
            twin = self.twins[kind]
            differing = [path for path in {*content, *twin} if content.get(path) != twin.get(path)]
            shown = {path: (content.get(path), twin.get(path)) for path in sorted(differing)[:2]}
            self._result.faults.append(f"{kind} differs at {differing[:4]}: {str(shown)[:600]}")


async def run(folder: Path, kills: int, stops: int, seed: int = 0) -> Result:
    """One fault after another until there were as many, under load."""
    result, rng = Result(), random.Random(seed)
    timeout = aiohttp.ClientTimeout(total=None)
    with fleet_of_engines(folder, {}, EXACT) as fleet:
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
            clients = Clients(fleet, session, result)
            for kind in tqdm(KINDS, desc="undisturbed twins"):
                clients.twins[kind] = await clients.stream(kind)
            result.longest_gap, started, over = 0.0, time.monotonic(), asyncio.Event()

            async def load(number: int) -> None:
                kinds = sorted(KINDS)
                while not over.is_set():
                    await clients.compare(kinds[number % len(kinds)])
                    number += 1

            async def break_engines() -> None:
                faults = ["kill"] * kills + ["stop"] * stops
                rng.shuffle(faults)
                for fault in tqdm(faults, desc="faults"):
                    await asyncio.sleep(rng.uniform(0.5, 4))
                    engine = rng.choice(fleet.engines)
                    if fault == "kill":
                        await kill_and_restart(engine)
                        result.kills += 1
                    else:
                        await stop_and_continue(engine, STOPPED_SECONDS)
                        result.stops += 1
                over.set()

            async with asyncio.TaskGroup() as tasks:
                for number in range(STREAMS):
                    tasks.create_task(load(number))
                tasks.create_task(break_engines())
            result.seconds = round(time.monotonic() - started, 1)
            async with session.get(f"{fleet.gateway.url}/metrics") as response:
                result.continued = _continued((await response.text()).splitlines())
    return result


def _continued(lines: Sequence[str]) -> dict[str, float]:
    name = "paternoster_gateway_continued_streams_total{"
    return {line.split('reason="')[1].split('"')[0]: float(line.split()[-1]) for line in lines if line.startswith(name)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--stops", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where the result is written")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(run(Path(folder), args.kills, args.stops, args.seed))
    if args.json:
        args.json.write_text(json.dumps(asdict(result), indent=1))
    console = Console()
    console.print(
        f"{result.kills} kills and {result.stops} stops in {result.seconds} s: {sum(result.streams.values())} streams, "
        f"{sum(result.continued.values()):.0f} times one went on at another engine, longest gap "
        f"{result.longest_gap:.1f} s, {len(result.faults)} were not their twins"
    )
    console.print(result.streams)
    for fault in result.faults[:20]:
        console.print(fault, markup=False)
    return 1 if result.faults else 0
