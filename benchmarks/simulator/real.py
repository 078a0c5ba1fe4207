"""The real side: calibrations that run at the same time as each other, and the trace through a local fleet."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import yaml

from harness.load import open_client, running
from harness.local_fleet import PATERNOSTER, FleetError, LocalFleet
from paternoster_engine.bench.calibration.step_cost import StepSample
from paternoster_load.client import drive_load
from paternoster_load.progress import show_progress
from paternoster_load.results import BenchRequest
from paternoster_simulator.profile import Profile, parse_profile
from paternoster_traces.trace import TraceRow
from simulator.conditions import Conditions
from simulator.measures import Measures, of_reality
from simulator.processors import Beside

SAMPLE_SECONDS = 0.5
WARM_UP = 4
"""Requests for each replica before the run: first steps allocate."""


async def calibrate(conditions: Conditions, folder: Path, *, seconds: float) -> tuple[Profile, list[StepSample]]:
    """Run a calibration for each replica at once: they share the machine as the replicas will.

    Returns the first one's profile, and the steps of all.
    """
    args = conditions.engine_args.to_flags()
    processes = []
    for number in range(conditions.replicas):
        output, samples = folder / f"profile-{number}.yaml", folder / f"steps-{number}.jsonl"
        flags = ["--output", output, "--samples", samples, "--seconds", f"{seconds:g}", "--seed", str(number)]
        processes.append(
            await asyncio.create_subprocess_exec(
                PATERNOSTER, "bench", "calibrate", *map(str, flags), "--", *args, stdout=asyncio.subprocess.DEVNULL
            )
        )
    codes = [await process.wait() for process in processes]
    if any(codes):
        raise FleetError(f"a calibration ended with exit code {max(codes)}")
    steps: list[StepSample] = []
    for number in range(conditions.replicas):
        lines = (folder / f"steps-{number}.jsonl").read_text(encoding="utf-8").splitlines()
        steps += [StepSample.from_document(json.loads(line)) for line in lines]
    path = folder / "profile-0.yaml"
    return parse_profile(path.read_text(encoding="utf-8"), where=str(path)), steps


async def serve(conditions: Conditions, rows: Sequence[TraceRow], folder: Path, *, law: bool) -> tuple[Measures, float]:
    """Start the fleet, send ``rows`` at their times through its gateway, and measure.

    Also returns the share of the processors that client, gateway, operator and HTTP took meanwhile, 0..1.
    """
    fleet = LocalFleet(conditions.manifest(law=law), conditions.replicas, folder)
    async with fleet, open_client(fleet.endpoint) as (client, prompts):
        count = WARM_UP * conditions.replicas
        warm = [BenchRequest(-1 - i, prompts.make_prompt(-1 - i, 64), 16) for i in range(count)]
        await drive_load(client, warm)
        requests = [
            BenchRequest(i, prompts.make_prompt(i, row.prompt_tokens), row.output_tokens, row.arrival_s)
            for i, row in enumerate(rows)
        ]
        await fleet.sample()
        beside = Beside(fleet.pid)
        async with running(fleet.keep_sampling(SAMPLE_SECONDS)):
            with show_progress("real requests", len(requests), quiet=False) as on_result:
                results = await drive_load(client, requests, on_result=on_result)
            share = beside.share
        await fleet.sample()
    (folder / "samples.jsonl").write_text(
        "".join(
            json.dumps({"time": s.time, "engines": [stats.model_dump(mode="json") for stats in s.engines]}) + "\n"
            for s in fleet.samples
        ),
        encoding="utf-8",
    )
    return of_reality(results, fleet.samples), share


def write_profile(profile: Profile, path: Path) -> None:
    path.write_text(yaml.safe_dump(profile.model_dump(), sort_keys=False), encoding="utf-8")
