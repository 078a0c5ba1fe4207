"""Share of a trace's prompt tokens found in caches, and times to first tokens, by ways of routing, in virtual time.

Also by which share the times to first bytes that the gateway expects are wrong, in the median. The engines are the real
scheduler and prefix cache with the costs of a profile; the routing is the gateway's. The trace must state which
prefixes are shared, as Mooncake's does.
"""

import math
import time
from collections.abc import Callable, Mapping

import numpy as np

from gateway.peer_routing import LlmdRouting, SmgRouting
from harness.arguments import RunnerParser
from paternoster_gateway.routing.prefix_routing import PrefixRouting, PromptTokens, SentRequest
from paternoster_simulator.arrivals import replay_trace
from paternoster_simulator.cost import to_seconds
from paternoster_simulator.policies.fixed import FixedPolicy
from paternoster_simulator.profile import load_profile
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.trace import read_trace
from paternoster_traces.workload import Limits


class ComparedRouting(PrefixRouting):
    """Paternoster's routing, with the share by which each expected time to a first byte was wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[float] = []

    def on_first_byte(
        self, model: str, sent: SentRequest, url: str, now: float, *, served: bool, tokens: PromptTokens | None = None
    ) -> None:
        if served and sent.expected_seconds is not None and now > sent.at:
            self.errors.append(abs(sent.expected_seconds / (now - sent.at) - 1))
        super().on_first_byte(model, sent, url, now, served=served, tokens=tokens)


HISTORY = "text history"
"""Routing like Paternoster's, of engines that do not publish what they have cached."""
WAYS: Mapping[str, Callable[[float], PrefixRouting | None]] = {
    "least-loaded": lambda _: None,
    "paternoster": lambda _: ComparedRouting(),
    HISTORY: lambda _: ComparedRouting(),
    "llm-d": LlmdRouting,
    "smg": lambda _: SmgRouting(),
}


def main() -> int:
    parser = RunnerParser(__doc__)
    parser.add_argument("trace", help="file with prefix blocks")
    parser.add_number("--replicas", 64)
    parser.add_argument("--profile", default="llama-3-8b-h100")
    parser.add_number("--speed", 20.0, "times as fast as the trace")
    parser.add_argument("--duration", type=float, help="seconds, the trace repeated; default: the trace once")
    parser.add_names("--ways", WAYS)
    args = parser.parse_args()
    rows = read_trace(args.trace)
    longest = max(row.prompt_tokens + row.output_tokens for row in rows)
    profile = load_profile(args.profile).model_copy(update={"max_model_len": longest})
    duration = args.duration or rows[-1].arrival_s / args.speed + 1e-6
    print(
        f"{args.replicas} replicas of {profile.name}, {len(rows):,} requests at {args.speed:g} times the trace's speed"
    )
    titles = f"{'routing':<14}{'found':>8}{'TTFT mean':>11}{'p50':>8}{'p90':>8}{'p99':>9}"
    print(f"{titles}{'preempted':>11}{'wrong':>8}{'run':>7}  s")
    for way in args.ways:
        prefixes, begin = WAYS[way](1 / to_seconds(profile.cost.prefill_token)), time.perf_counter()
        outcome = simulate_fleet(
            profile,
            replay_trace(rows, speed=args.speed, duration=args.duration, limits=Limits(max_total=longest)),
            FixedPolicy(args.replicas),
            start_replicas=args.replicas,
            duration=duration,
            settings=FleetSettings(
                prefix_cache=True,
                prefix_routing=prefixes is not None,
                published_caches=way != HISTORY,
                max_queued_requests=10_000,
            ),
            prefixes=prefixes,
        )
        totals, ttft = outcome.totals, outcome.records.ttft
        ttft = ttft[~np.isnan(ttft)]
        p50, p90, p99 = np.percentile(ttft, (50, 90, 99)) if len(ttft) else (math.nan,) * 3
        errors = prefixes.errors if isinstance(prefixes, ComparedRouting) else []
        wrong = f"{np.median(errors):.0%}" if errors else "-"
        print(
            f"{way:<14}{totals.cached_prompt_tokens / totals.prompt_tokens:>8.1%}{ttft.mean():>11.3f}{p50:>8.3f}"
            f"{p90:>8.3f}{p99:>9.3f}{totals.preempted:>11,}{wrong:>8}{time.perf_counter() - begin:>7.0f}",
            flush=True,
        )
    return 0
