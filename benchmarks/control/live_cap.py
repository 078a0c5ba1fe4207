"""Fixed live caps and the law on one replica with scarce memory, in virtual time.

    python benchmarks control.live_cap --draws 3

Clients send their next request when the last one was answered, so that there is always a queue. A shape is how long
prompts and answers are; a machine is a profile with a block size and a pool for about ten of the shorter requests. An
arm begins with all clients at the highest cap. Tokens a second and preempted requests count from the 61st second on.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.local_fleet import manifest
from harness.results import without_repeats, write_json
from paternoster_contract.stats import EngineStats
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.autoscaling.autoscaler import Autoscaler
from paternoster_operator.autoscaling.decision import LIVE_CAP
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_simulator.cost import to_seconds, to_ticks
from paternoster_simulator.policies.law import PERIOD_SECONDS
from paternoster_simulator.profile import Profile, load_profile
from paternoster_simulator.replica.replica import SimulatedReplica
from paternoster_simulator.replica.reports import report_stats
from paternoster_simulator.settings import FleetSettings

CLIENTS = 32
MAX_MODEL_LEN = 2048
SETTLED_SECONDS = 60.0
"""Time at the beginning that is not counted: the law finds its cap."""
CAPS = (*range(3, 13), 14, 16, 20, 24, CLIENTS)
OBJECTIVES = ("PreemptionRate", "Goodput")
TARGET = 0.02
"""Share of requests that may be preempted with the objective PreemptionRate."""


@dataclass(frozen=True)
class Shape:
    """Lengths of prompts and answers, tokens."""

    name: str
    prompt: int
    answer: int
    tail: float = 0.0
    """Standard deviation of the logarithm of an answer's length; 0 for lengths from half of the mean to 1.5 times."""

    def draw_lengths(self, rng: Random) -> tuple[int, int]:
        prompt = max(2, round(self.prompt * rng.uniform(0.5, 1.5)))
        if not self.tail:
            return prompt, max(2, round(self.answer * rng.uniform(0.5, 1.5)))
        answer = rng.lognormvariate(math.log(self.answer) - self.tail**2 / 2, self.tail)
        return prompt, max(2, min(round(answer), 8 * self.answer))


@dataclass(frozen=True)
class Machine:
    """A profile with little memory."""

    profile: str
    block_size: int
    blocks: int
    slower: int = 1
    """How many times as long steps take as in the profile, as beside other programs."""

    @property
    def name(self) -> str:
        slower = f", {self.slower} times as slow" if self.slower > 1 else ""
        return f"{self.profile}, {self.blocks} blocks of {self.block_size}{slower}"

    def load_profile(self) -> Profile:
        profile = load_profile(self.profile)
        step = profile.step.model_copy(update={name: each * self.slower for name, each in profile.step})
        changes = {"kv_block_size": self.block_size, "kv_blocks": self.blocks, "step": step}
        return profile.model_copy(update=changes)


@dataclass(frozen=True)
class Arm:
    """Throughput, preemptions and caps of one arm."""

    tokens_per_second: float
    preempted_share: float
    """Distinct requests preempted, of those that ended."""
    repeated_share: float
    """Tokens computed again, of all."""
    caps: list[int]
    """Live caps as they followed one another."""


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("answers of 64", 40, 64),
        Shape("answers of 128", 40, 128),
        Shape("long tail", 40, 64, tail=1.0),
        Shape("answers of 6", 4, 6),
    )
}
COMPARED = ("answers of 64", "answers of 128", "long tail")
MACHINES = (
    Machine("smollm2-135m-vllm-avx512-cpu1", 16, 65),
    Machine("smollm2-135m-vllm-avx512-cpu1", 128, 14),
    Machine("smollm2-135m-avx512-cpu2", 16, 65),
    Machine("smollm2-135m-vllm-avx512-cpu1", 32, 34, slower=6),
)


def make_autoscaler(concurrency: Mapping[str, Any]) -> Autoscaler:
    """The law for one replica that runs as many sequences as there are clients."""
    source, engine = {"source": "file:///models/model.gguf"}, {"maxNumSeqs": CLIENTS}
    document = manifest("a", model=source, engine=engine, replicas=1, concurrency=dict(concurrency))
    return Autoscaler(ScalingPolicy.from_spec(parse_resource(document).spec))


class ClosedLoop:
    """One replica, its clients and its autoscaler."""

    def __init__(self, profile: Profile, concurrency: Mapping[str, Any], draw: int) -> None:
        settings = FleetSettings(max_num_seqs=CLIENTS, max_model_len=MAX_MODEL_LEN)
        self._profile = profile
        self._replica = SimulatedReplica("replica", settings.scheduler_config(profile), profile.cost)
        self._autoscaler = make_autoscaler(concurrency)
        self._rng = Random(draw)
        self._sent = 0
        self._next_look = 0

    def run(self, shapes: Sequence[Shape], seconds: float) -> list[Arm]:
        """Each of ``shapes`` for ``seconds``, one after another, with what the law learnt before."""
        arms = []
        for number, shape in enumerate(shapes):
            looks = list(self._run_shape(shape, to_ticks(number * seconds), to_ticks((number + 1) * seconds)))
            settled = next(stats for when, stats in looks if when >= number * seconds + SETTLED_SECONDS)
            caps = [stats.live_cap for _, stats in looks]
            arms.append(_summarize(settled, looks[-1][1], caps))
        return arms

    def _run_shape(self, shape: Shape, begin: int, end: int) -> Iterator[tuple[float, EngineStats]]:
        replica = self._replica
        if not self._sent:
            for _ in range(CLIENTS):
                self._send(shape, begin)
        while self._next_look < end:
            if replica.end is not None and replica.end < self._next_look:
                now = replica.end
                for _ in replica.advance(now):
                    self._send(shape, now)
                continue
            now, self._next_look = self._next_look, self._next_look + to_ticks(PERIOD_SECONDS)
            stats = report_stats(self._profile.engine, replica.build_stats(now))
            moment = to_seconds(now)
            self._autoscaler.observe(Observation(moment, 1, ("replica",), (), (), {"replica": stats}))
            replica.set_cap(self._autoscaler.decide(moment).targets[LIVE_CAP], now)
            yield moment, stats

    def _send(self, shape: Shape, now: int) -> None:
        prompt, answer = shape.draw_lengths(self._rng)
        params = SamplingParams(max_tokens=answer, temperature=0.0, ignore_eos=True)
        self._sent += 1
        self._replica.add(Request(RequestSpec(str(self._sent), [1] * prompt, params, arrival=now, seed=1)), now)


def run_law(machine: Machine, shapes: Sequence[Shape], objective: str, seconds: float, draw: int) -> list[Arm]:
    """The law on one shape after another."""
    return ClosedLoop(machine.load_profile(), {"mode": "Auto", "objective": objective}, draw).run(shapes, seconds)


def run_fixed(machine: Machine, shape: Shape, cap: int, seconds: float, draw: int) -> Arm:
    """A cap that nothing moves."""
    return ClosedLoop(machine.load_profile(), {"mode": "Fixed", "initial": cap}, draw).run([shape], seconds)[0]


def find_best(fixed: Mapping[int, Arm], objective: str) -> int:
    """The fixed cap with the most tokens a second; with PreemptionRate of those that keep the target."""
    held = {cap: arm for cap, arm in fixed.items() if objective == "Goodput" or arm.preempted_share <= TARGET}
    return max(held or fixed, key=lambda cap: fixed[cap].tokens_per_second if held else -cap)


def _summarize(first: EngineStats, last: EngineStats, caps: Sequence[int]) -> Arm:
    def grown(name: str) -> float:
        return float(getattr(last, name) - getattr(first, name))

    return Arm(
        tokens_per_second=grown("generation_tokens_total") / (last.time - first.time),
        preempted_share=grown("requests_preempted_total") / max(grown("requests_finished_total"), 1),
        repeated_share=grown("recomputed_tokens_total") / max(grown("computed_tokens_total"), 1),
        caps=without_repeats(caps),
    )


def compare_arms(seconds: float, draws: int) -> list[dict[str, Any]]:
    """A row for each machine, shape and draw: the best fixed cap of each objective, and the law."""
    turns = [(machine, SHAPES[name], draw) for machine in MACHINES for name in COMPARED for draw in range(draws)]
    rows = []
    for machine, shape, draw in tqdm(turns, unit="draw", disable=None):
        fixed = {cap: run_fixed(machine, shape, cap, seconds, draw) for cap in CAPS}
        row: dict[str, Any] = {"machine": machine.name, "shape": shape.name, "draw": draw}
        for objective in OBJECTIVES:
            best, law = find_best(fixed, objective), run_law(machine, [shape], objective, seconds, draw)[0]
            ratio = law.tokens_per_second / fixed[best].tokens_per_second
            row[objective] = {"best": best, "fixed": asdict(fixed[best]), "law": asdict(law), "ratio": ratio}
        rows.append(row)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Medians of the draws, and the least and most of the ratios."""
    found = Table("machine", "shape", "objective", "best fixed cap", "tokens/s", "preempted", "the law: over it",
                  "tokens/s", "preempted", "computed again", "caps of the first draw")  # fmt: skip
    for machine, shape in dict.fromkeys((row["machine"], row["shape"]) for row in rows):
        for objective in OBJECTIVES:
            runs = [row[objective] for row in rows if (row["machine"], row["shape"]) == (machine, shape)]

            def middle(pick: Callable[[dict[str, Any]], float], runs: list[dict[str, Any]] = runs) -> float:
                return float(median(pick(run) for run in runs))

            ratios = [run["ratio"] for run in runs]
            found.add_row(
                machine, shape, objective, f"{middle(lambda run: run['best']):.0f}",
                f"{middle(lambda run: run['fixed']['tokens_per_second']):.0f}",
                f"{middle(lambda run: run['fixed']['preempted_share']):.1%}",
                f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
                f"{middle(lambda run: run['law']['tokens_per_second']):.0f}",
                f"{middle(lambda run: run['law']['preempted_share']):.1%}",
                f"{middle(lambda run: run['law']['repeated_share']):.1%}",
                " ".join(map(str, runs[0]["law"]["caps"])),
            )  # fmt: skip
    return found


def main() -> int:
    parser = RunnerParser(__doc__, json="write all rows here")
    parser.add_number("--seconds", 300.0, "of virtual time, each arm", least=2 * SETTLED_SECONDS)
    parser.add_number("--draws", 3, "of the lengths")
    args = parser.parse_args()
    rows = compare_arms(args.seconds, args.draws)
    Console(width=200).print(table(rows))
    write_json(args.json, rows)
    return 0
