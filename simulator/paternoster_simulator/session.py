"""One run of ``paternoster simulate``: arguments into a simulation, and its outcome onto the terminal."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from paternoster_contract.cli.terminal import print_json, print_lines
from paternoster_operator.api.manifest import load_resources
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_simulator.arrivals import generate_requests, named_pattern, replay_trace
from paternoster_simulator.outcome.outcome import SimulationOutcome
from paternoster_simulator.outcome.summary import decision_lines, summary_lines
from paternoster_simulator.policies.registry import make_policy
from paternoster_simulator.profile import Profile, load_profile
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.simulation import Progress, simulate_fleet
from paternoster_traces.synthetic import AZURE_CONVERSATION
from paternoster_traces.trace import TraceRow, read_trace
from paternoster_traces.workload import Limits

SYNTHETIC = "synthetic"
DEFAULT_DURATION = 600.0


def run_session(args: argparse.Namespace) -> SimulationOutcome:
    """Simulate as the arguments say, print and write; raises ``ValueError`` with what is wrong with them."""
    if args.report:
        # A missing extra is found here, before the work.
        from paternoster_simulator.outcome.report import write_report
    resource = _load_resource(args.file)
    profile = load_profile(args.profile)
    rows, duration, shared = _read_requests(args, resource, profile)
    settings = FleetSettings.from_spec(resource.spec, profile, prefix_cache=shared)
    with _show_progress(duration, quiet=args.json) as progress:
        outcome = simulate_fleet(
            profile,
            rows,
            make_policy(args.policy, resource.spec, profile),
            start_replicas=_start_replicas(args, resource),
            duration=duration,
            seed=args.seed,
            settings=settings,
            progress=progress,
        )
    if args.json:
        print_json({"policy": args.policy, **outcome.to_json()})
    else:
        print_lines([*summary_lines(outcome), "", *decision_lines(outcome)])
    if args.report:
        write_report(args.report, outcome, title=f"{resource.metadata.name} under {args.trace}")
    return outcome


def _load_resource(path: str) -> LLMDeployment:
    resources = load_resources(path)
    if len(resources) != 1:
        names = ", ".join(resource.metadata.name for resource in resources)
        raise ValueError(f"{path}: has {len(resources)} LLMDeployments ({names}): must have one")
    return resources[0]


def _read_requests(
    args: argparse.Namespace, resource: LLMDeployment, profile: Profile
) -> tuple[Iterator[TraceRow], float, bool]:
    """Requests in order of arrival, for how long, and whether they tell of shared prefixes."""
    settings = FleetSettings.from_spec(resource.spec, profile)
    limits = Limits(max_total=settings.max_model_len or profile.max_model_len)
    source, _, pattern = args.trace.partition(":")
    if source == SYNTHETIC:
        if args.speed is not None:
            raise ValueError(f"--speed is {args.speed}: is for trace files; use --rate with {SYNTHETIC} traffic")
        duration = args.duration or DEFAULT_DURATION
        rate = AZURE_CONVERSATION.rate if args.rate is None else args.rate
        shape = named_pattern(pattern or "constant", rate, duration)
        return generate_requests(shape, duration=duration, seed=args.seed, limits=limits), duration, False
    rows = read_trace(args.trace)
    speed = 1.0 if args.speed is None else args.speed
    if args.rate is not None and rows[-1].arrival_s > 0:
        speed = args.rate * rows[-1].arrival_s / max(len(rows) - 1, 1)
    once = rows[-1].arrival_s / speed if speed > 0 else 0.0
    # A row at the very end of the trace is part of it.
    duration = args.duration or once + 1e-6
    repeat = args.duration if once and args.duration and args.duration > once else None
    shared = any(row.prefix_blocks for row in rows)
    return replay_trace(rows, speed=speed, duration=repeat, limits=limits), duration, shared


def _start_replicas(args: argparse.Namespace, resource: LLMDeployment) -> int:
    if args.start_replicas is not None:
        return int(args.start_replicas)
    spec = resource.spec
    if spec.replicas is not None:
        return spec.replicas
    return spec.autoscaling.min_replicas if spec.autoscaling is not None else 1


@contextmanager
def _show_progress(duration: float, *, quiet: bool) -> Iterator[Progress | None]:
    """A bar of virtual seconds on stderr, where that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress as Bar

    from paternoster_contract.cli.console import QuotingConsole

    with Bar(console=QuotingConsole(stderr=True), transient=True) as bar:
        task = bar.add_task("virtual time", total=duration)
        yield lambda second: bar.update(task, completed=min(second, duration))
