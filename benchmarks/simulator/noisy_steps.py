"""The token budget in virtual time on a machine with other work, where steps of one size differ.

    python benchmarks simulator.noisy_steps        3 minutes on a busy machine

One replica with the steps of a vLLM on a CPU, ten times as slow as measured alone. Three users decode, and a prompt of
800 tokens comes every few seconds. The time of each step is multiplied by chance (log-normal), and by a load that
wanders; the budget stays at 512, or the loop moves it. What comes after the first 100 s counts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from harness.arguments import RunnerParser
from harness.local_fleet import manifest
from paternoster_engine.core.batch import Batch
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.autoscaling.autoscaler import Autoscaler
from paternoster_operator.autoscaling.decision import TOKEN_BUDGET
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_simulator.cost import StepCost, to_seconds, to_ticks
from paternoster_simulator.policies.law import PERIOD_SECONDS
from paternoster_simulator.profile import load_profile
from paternoster_simulator.replica.replica import SimulatedReplica
from paternoster_simulator.replica.reports import report_stats
from paternoster_simulator.settings import FleetSettings

PROFILE = "smollm2-135m-vllm-avx512-cpu1"
SLOWER = 10
CAPACITY, KV_BLOCKS, MAX_NUM_SEQS = 512, 2000, 32
USERS, PROMPT, ANSWER, BURST_ANSWER = 3, 800, 200, 4
USER_PROMPT = 64
LIMIT_MS = 1500
SETTLED_SECONDS = 100.0


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the logarithm of a step's time."""

    each: float
    """Spread of one step by itself."""
    load: float
    """Spread of the load of the machine."""
    load_seconds: float = 60.0
    """Time in which the load forgets what it was."""


NOISES = (Noise(0, 0), Noise(0.3, 0), Noise(0.5, 0), Noise(0.3, 0.4))
EVERY = (20, 8)
"""Seconds from prompt to prompt."""
MODES = ("Fixed", "Auto")


@dataclass
class BusyMachine:
    """Factors by which a step takes more or less time than the fit."""

    noise: Noise
    rng: Random
    now: float = 0.0
    """Set before each step."""
    _level: float = 0.0
    _last: float = 0.0

    def draw_factor(self) -> float:
        faded = math.exp((self._last - self.now) / self.noise.load_seconds)
        self._level = faded * self._level + math.sqrt(1 - faded**2) * self.rng.gauss(0, self.noise.load)
        self._last = self.now
        return math.exp(self._level + self.rng.gauss(0, self.noise.each))


@dataclass(frozen=True)
class NoisyCost(StepCost):
    """A cost of steps whose times differ by chance."""

    machine: BusyMachine = field(default_factory=lambda: BusyMachine(Noise(0, 0), Random()))

    def step(self, batch: Batch) -> int:
        return round(super().step(batch) * self.machine.draw_factor())


@dataclass
class Felt:
    """Seconds between two tokens of who decode, and to the first token of the prompts."""

    between: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    budgets: list[int] = field(default_factory=list)


class BusyReplica:
    """One replica, its users and the loop of its token budget."""

    def __init__(self, noise: Noise, mode: str, seed: int) -> None:
        profile = load_profile(PROFILE).model_copy(update={"kv_blocks": KV_BLOCKS})
        settings = FleetSettings(max_num_seqs=MAX_NUM_SEQS, max_model_len=2048, max_batched_tokens=CAPACITY)
        prices = {each.name: getattr(profile.cost, each.name) * SLOWER for each in fields(StepCost)}
        self._machine = BusyMachine(noise, Random(seed + 1))
        cost = NoisyCost(**prices, machine=self._machine)
        self._replica = SimulatedReplica("replica", settings.scheduler_config(profile), cost, fast_forward=False)
        self._engine = profile.engine
        document = manifest(
            "a", model={"source": "file:///models/model.gguf"}, replicas=1, slo={"itlP95Milliseconds": LIMIT_MS},
            engine={"maxNumSeqs": MAX_NUM_SEQS, "maxBatchedTokens": CAPACITY},
            concurrency={"mode": "Fixed", "tokenBudget": {"mode": mode, "min": 32}},
        )  # fmt: skip
        self._autoscaler = Autoscaler(ScalingPolicy.from_spec(parse_resource(document).spec))
        self._rng = Random(seed)
        self._sent = 0
        self._latest: dict[str, int] = {}
        """Time of the last token of each user."""

    def run(self, every: float, seconds: float) -> Felt:
        felt, replica, end = Felt(), self._replica, to_ticks(seconds)
        for _ in range(USERS):
            self._send(USER_PROMPT, self._draw_answer(), 0)
        prompts, looks = self._every(every), self._every(PERIOD_SECONDS)
        prompt, next_look = next(prompts), next(looks)
        while (now := min(prompt, next_look, next_look if replica.end is None else replica.end)) < end:
            self._machine.now = to_seconds(now)
            if now == replica.end:
                self._end_step(now, felt)
            elif now == prompt:
                self._send(PROMPT, BURST_ANSWER, now)
                prompt = next(prompts)
            else:
                self._take_look(now, felt)
                next_look = next(looks)
        return felt

    def _end_step(self, now: int, felt: Felt) -> None:
        batch = self._replica._batch
        assert batch is not None
        for request in self._replica.advance(now):
            if len(request.prompt) == USER_PROMPT:
                self._send(USER_PROMPT, self._draw_answer(), now)
        settled = to_seconds(now) > SETTLED_SECONDS
        for request in (item.request for item in batch.scheduled):
            if request.first_token is None:
                continue
            if len(request.prompt) == PROMPT:
                if settled and request.first_token == now:
                    felt.first.append(to_seconds(now - round(request.spec.arrival)))
                continue
            before = self._latest.get(request.request_id)
            if settled and before is not None:
                felt.between.append(to_seconds(now - before))
            self._latest[request.request_id] = now

    def _take_look(self, now: int, felt: Felt) -> None:
        moment = to_seconds(now)
        stats = report_stats(self._engine, self._replica.build_stats(now))
        self._autoscaler.observe(Observation(moment, 1, ("replica",), (), (), {"replica": stats}))
        budget = self._autoscaler.decide(moment).targets[TOKEN_BUDGET]
        self._replica.set_token_budget(budget)
        if moment > SETTLED_SECONDS:
            felt.budgets.append(budget)

    def _send(self, prompt: int, answer: int, now: int) -> None:
        self._sent += 1
        params = SamplingParams(max_tokens=answer, temperature=0.0, ignore_eos=True)
        self._replica.add(Request(RequestSpec(str(self._sent), [1] * prompt, params, arrival=now, seed=1)), now)

    def _draw_answer(self) -> int:
        return round(ANSWER * self._rng.uniform(0.75, 1.25))

    @staticmethod
    def _every(seconds: float) -> Iterator[int]:
        number = 0
        while True:
            yield to_ticks(number * seconds)
            number += 1


def main() -> int:
    parser = RunnerParser(__doc__)
    parser.add_number("--seconds", 600.0, "of virtual time, each run", least=2 * SETTLED_SECONDS)
    parser.add_number("--seeds", 2, "runs of each")
    args = parser.parse_args()
    table = Table("a step, the load", "a prompt every", "budget", "between tokens, ms: p50", "p95",
                  f"over {LIMIT_MS} ms", "first tokens of the prompts, s: p50", "p95")  # fmt: skip
    turns: list[tuple[Noise, int, str]] = [(n, every, mode) for n in NOISES for every in EVERY for mode in MODES]
    for noise, every, mode in turns:
        runs = [BusyReplica(noise, mode, seed).run(every, args.seconds) for seed in range(args.seeds)]
        table.add_row(f"{noise.each:.0%}, {noise.load:.0%}", f"{every} s", *summarize(runs))
    Console(width=160).print(table)
    return 0


def summarize(runs: list[Felt]) -> list[str]:
    """Cells of a table, each with the figures of all runs."""

    def join(values: Any) -> str:
        return ", ".join(values)

    return [
        join(f"{np.median(run.budgets):.0f}" for run in runs),
        *(join(f"{1000 * np.percentile(run.between, p):.0f}" for run in runs) for p in (50, 95)),
        join(f"{np.mean(np.array(run.between) > LIMIT_MS / 1000):.1%}" for run in runs),
        *(join(f"{np.percentile(run.first, p):.1f}" for run in runs) for p in (50, 95)),
    ]
