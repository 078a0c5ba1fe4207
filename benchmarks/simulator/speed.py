"""How fast the simulator is: virtual over real time, requests a second, and peak memory.

    python benchmarks simulator.speed --replicas 8 --rate 80 --duration 600
    python benchmarks simulator.speed --replicas 1000 --rate 2000 --duration 3600

Fixed replicas on one core, looked at every 5 s, under synthetic traffic or a trace. Time is the process's own CPU time
(on an idle machine the same as the clock's), without reading the trace.
"""

import argparse
import json
import resource
import time
from collections.abc import Iterator

from tqdm import tqdm

from harness.arguments import RunnerParser
from paternoster_simulator.arrivals import constant_rate, generate_requests, replay_trace
from paternoster_simulator.policies.fixed import FixedPolicy
from paternoster_simulator.profile import Profile, load_profile
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.trace import TraceRow, read_trace
from paternoster_traces.workload import Limits


def requests(args: argparse.Namespace, profile: Profile) -> Iterator[TraceRow]:
    limits = Limits(max_total=profile.max_model_len)
    if args.trace is None:
        return generate_requests(constant_rate(args.rate), duration=args.duration, seed=args.seed, limits=limits)
    return replay_trace(read_trace(args.trace), rate=args.rate, duration=args.duration, limits=limits)


def main() -> int:
    parser = RunnerParser(__doc__)
    parser.add_argument("--profile", default="llama-3-8b-h100", metavar="NAME|FILE")
    parser.add_argument("--trace", metavar="FILE", help="default: synthetic traffic shaped like Azure's conversations")
    parser.add_number("--replicas", 8)
    parser.add_number("--rate", 80.0, "requests per second of the whole fleet")
    parser.add_number("--duration", 600.0, "virtual seconds")
    parser.add_number("--seed", 0, least=0)
    parser.add_argument("--no-fast-forward", action="store_true", help="every step for itself")
    args = parser.parse_args()
    profile = load_profile(args.profile)
    rows = requests(args, profile)
    begin, began = time.process_time(), time.monotonic()
    total = round(args.duration)
    with tqdm(total=total, unit=" virtual s", mininterval=1.0) as bar:

        def progress(second: float) -> None:
            bar.update(min(round(second), total) - bar.n)

        outcome = simulate_fleet(
            profile,
            rows,
            FixedPolicy(args.replicas),
            start_replicas=args.replicas,
            duration=args.duration,
            seed=args.seed,
            settings=FleetSettings(fast_forward=not args.no_fast_forward),
            progress=progress,
        )
    spent, passed = time.process_time() - begin, time.monotonic() - began
    running = outcome.series.running
    result = {
        "replicas": args.replicas,
        "rate": args.rate,
        "virtual_seconds": outcome.seconds,
        "real_seconds": spent,
        "clock_seconds": passed,
        "virtual_over_real": outcome.seconds / spent,
        "requests": outcome.requests,
        "requests_per_real_second": outcome.requests / spent,
        "microseconds_per_request": spent / max(outcome.requests, 1) * 1e6,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "mean_running_per_replica": sum(running) / len(running) / args.replicas,
        "slo_attainment": outcome.slo_attainment,
        "itl_p50_ms": outcome.find_percentiles("itl")["p50"],
        "lost": outcome.lost,
    }
    print(json.dumps(result, indent=2))
    return 0
