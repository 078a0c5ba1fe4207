"""Times the steps of an engine over a small design: prefill chunks, decode batches and mixtures of both.

The context of a step is made for nothing: until the steps that are timed, the scheduler runs and the model does not,
because how long attention takes does not depend on what is in the KV cache.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from paternoster_engine.bench.calibration.step_cost import StepSample
from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.kv.kv_groups import KVGroups
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.core.step_work import StepWork
from paternoster_engine.engine import Engine
from paternoster_engine.runner.protocol import Runner, SynchronousRunner

DECODE_STEPS = 4
"""Decode steps timed for each visit of a cell."""
DECODE_OUTPUT = DECODE_STEPS + 3
"""Tokens that a decoding request asks for: it does not end while it is timed."""
PREFILL_OUTPUT = 2
DECODE_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DECODE_CONTEXTS = (32, 256, 1024, 4096)
CHUNKS = (16, 64, 256, 1024)
MIXED_CONTEXT = 128
JITTER = 0.2
"""Lengths of a visit differ from the cell's by up to this share: served lengths never repeat, and buffers and kernel
choices that only fit repeated ones must not flatter the result."""
MIN_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of step: ``decodes`` requests with ``context`` tokens each, and a chunk of a prompt beside them."""

    decodes: int = 0
    context: int = 0
    chunk: int = 0
    chunk_start: int = 0
    """Tokens of the prompt that come before the chunk."""

    @property
    def name(self) -> str:
        decode = f"decode {self.decodes} x {self.context}" if self.decodes else ""
        prefill = f"prefill {self.chunk} at {self.chunk_start}" if self.chunk else ""
        return " + ".join(part for part in (decode, prefill) if part)

    def fits_pool(self, config: SchedulerConfig) -> bool:
        """Whether the scheduler can be brought there without a preemption."""
        if (self.decodes and self.context < 1) or self.chunk == 1:  # one token that samples is a decode
            return False
        longest, groups = self.context + DECODE_OUTPUT, KVGroups(config)
        blocks = self.decodes * groups.count_sequence_blocks(longest)
        blocks += groups.count_sequence_blocks(self.chunk_start + self.chunk + PREFILL_OUTPUT) if self.chunk else 0
        return (
            self.decodes + (self.chunk > 0) <= config.max_num_seqs
            and self.decodes + self.chunk <= config.max_batched_tokens
            and max(longest if self.decodes else 0, self.chunk_start + self.chunk + PREFILL_OUTPUT)
            <= config.max_model_len
            and blocks + config.watermark_blocks <= config.num_blocks
        )

    def jitter_lengths(self, rng: random.Random) -> "Cell":
        """Make a cell whose lengths are a little shorter, so that it still fits."""
        shrink = 1 - rng.uniform(0, JITTER)
        return replace(self, context=max(1, round(self.context * shrink)), chunk=round(self.chunk * shrink))


def design_cells(config: SchedulerConfig) -> list[Cell]:
    """The cells that this scheduler can hold, small ones first: up to a full batch and to a full pool.

    A loaded engine runs there, so a fit must not have to guess what lies beyond its cells.
    """
    budget = config.max_batched_tokens
    batches = sorted({*(n for n in DECODE_BATCHES if n < config.max_num_seqs), config.max_num_seqs})
    chunks = sorted({*(n for n in CHUNKS if n < budget), budget})
    decode = [Cell(decodes=n, context=context) for context in DECODE_CONTEXTS for n in batches]
    full = [Cell(decodes=n, context=_fullest_context(config, n)) for n in batches]
    prefill = [Cell(chunk=chunk, chunk_start=start) for start in (0, budget, 3 * budget) for chunk in chunks]
    mixed = [
        Cell(decodes=n, context=MIXED_CONTEXT, chunk=min(chunk, budget - n))
        for n in sorted({*batches[1::2], config.max_num_seqs - 1})
        for chunk in chunks
    ]
    cells = dict.fromkeys((*decode, *full, *prefill, *mixed))
    return [cell for cell in cells if cell.fits_pool(config)]


def _fullest_context(config: SchedulerConfig, decodes: int) -> int:
    """Tokens of context with which that many sequences fill the pool, or come to their longest."""
    blocks = (config.num_blocks - config.watermark_blocks) // decodes
    return KVGroups(config).find_longest_sequence(blocks, config.max_model_len) - DECODE_OUTPUT


class Gauge(SynchronousRunner):
    """A runner that keeps what was in its last batch, and that computes nothing while ``passing``."""

    def __init__(self, runner: Runner) -> None:
        self.passing = False
        self.work = StepWork()
        self._runner = runner

    def execute(self, batch: Batch) -> StepResult:
        self.work = StepWork.from_batch(batch)
        if self.passing:
            return StepResult([0 if item.samples else None for item in batch.scheduled])
        return self._runner.submit(batch).result()


class Calibration:
    """Measures one engine. Not to be used while the engine serves."""

    def __init__(self, engine: Engine, *, seed: int = 0, clock: Callable[[], float] = time.perf_counter) -> None:
        self.config = engine.scheduler.config.replace(prefix_cache=False, order="fcfs", overlap=False)
        self.cells = design_cells(self.config)
        self._gauge = Gauge(engine.runner)
        self._clock = clock
        self._rng = random.Random(seed)

    def run(
        self,
        *,
        seconds: float,
        min_rounds: int = MIN_ROUNDS,
        on_visit: Callable[[Cell], None] = lambda _: None,
    ) -> list[StepSample]:
        """Visit all cells in a new random order again and again, for about ``seconds``, a first time unmeasured."""
        for cell in self.cells:
            self.time_cell(cell)
            on_visit(cell)
        samples: list[StepSample] = []
        end, rounds = self._clock() + seconds, 0
        while rounds < min_rounds or self._clock() < end:
            for cell in self._rng.sample(self.cells, len(self.cells)):
                samples += self.time_cell(cell)
                on_visit(cell)
                if rounds >= min_rounds and self._clock() >= end:
                    break
            rounds += 1
        return samples

    def time_cell(self, cell: Cell) -> list[StepSample]:
        """Bring a fresh scheduler to the cell's state and time its steps there."""
        wanted = cell.jitter_lengths(self._rng)
        scheduler = Scheduler(self.config)
        engine = Engine(scheduler, self._gauge)
        for i in range(wanted.decodes):
            scheduler.add(_build_request(f"decode-{i}", wanted.context, DECODE_OUTPUT))
        self._skip_step(engine, wanted.decodes * wanted.context)
        if wanted.chunk:
            scheduler.add(_build_request("prefill", wanted.chunk_start + wanted.chunk, PREFILL_OUTPUT))
            self._skip_step(engine, wanted.chunk_start and wanted.decodes + wanted.chunk_start)
        samples = []
        for _ in range(1 if wanted.chunk else DECODE_STEPS):
            begin = self._clock()
            engine.step()
            samples.append(StepSample(cell.name, self._gauge.work, self._clock() - begin))
        return samples

    def _skip_step(self, engine: Engine, budget: int) -> None:
        """One step of ``budget`` tokens, more than the engine's own if need be, without the model; none for 0."""
        if budget == 0:
            return
        self._gauge.passing = True
        scheduler = engine.scheduler
        scheduler.config = self.config.replace(max_batched_tokens=budget)
        scheduler.token_budget = budget
        engine.step()
        scheduler.config = self.config
        scheduler.token_budget = self.config.max_batched_tokens
        self._gauge.passing = False


def _build_request(name: str, prompt: int, output: int) -> Request:
    params = SamplingParams(max_tokens=output, temperature=0.0, ignore_eos=True)
    return Request(RequestSpec(name, [1 + i % 97 for i in range(prompt)], params))
