"""What the steps of a vLLM computed between two readings of its counters. Pure."""

from dataclasses import dataclass

from paternoster_engine.bench.calibration.step_cost import StepSample
from paternoster_engine.core.step_work import StepWork


class UnevenSteps(Exception):
    """Steps that were not alike: their work is not known."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of step: ``decodes`` sequences with ``context`` tokens each, and a chunk of a prompt beside them."""

    decodes: int = 0
    context: int = 0
    """When the first token is made; a token more with each step."""
    chunk: int = 0
    prompt: int = 0
    """Tokens of each prompt: a multiple of the chunk."""

    @property
    def name(self) -> str:
        decode = f"decode {self.decodes} x {self.context}" if self.decodes else ""
        prefill = f"prefill {self.chunk} of {self.prompt}" if self.chunk else ""
        return " + ".join(part for part in (decode, prefill) if part)

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.decodes + self.chunk


DECODES = (
    Cell(1, 32), Cell(1, 1024), Cell(1, 3072), Cell(4, 256), Cell(4, 1024), Cell(16, 32), Cell(16, 256),
    Cell(16, 1024), Cell(64, 32), Cell(64, 192),
)  # fmt: skip
PREFILLS = (
    Cell(chunk=16, prompt=256), Cell(chunk=64, prompt=512), Cell(chunk=256, prompt=1024), Cell(chunk=512, prompt=512),
    Cell(chunk=512, prompt=2048),
)  # fmt: skip
MIXED = (Cell(4, 128, 64, 512), Cell(16, 128, 64, 512), Cell(16, 128, 256, 1024), Cell(48, 128, 16, 256))
CELLS = (*DECODES, *PREFILLS, *MIXED)
"""Up to a full batch, a full step, and most of a pool of 512 MiB: a loaded engine runs there."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters of the plugin between two steps."""

    seconds: float
    """On any clock."""
    steps: int
    tokens: int
    """Scheduled."""


def only_decodes(before: Reading, after: Reading, decodes: int) -> bool:
    """Whether the steps between computed one token of each sequence and nothing else."""
    steps = after.steps - before.steps
    return steps > 0 and after.tokens - before.tokens == steps * decodes


def mean_step(cell: Cell, context: int, start: Reading, before: Reading, after: Reading) -> StepSample:
    """The mean of the steps from ``before`` to ``after``, in each of which was what ``cell`` has.

    ``start``: when all sequences decoded, with ``context`` tokens of them all, and no prompt was begun.
    Raises :class:`UnevenSteps`.
    """
    steps, decodes, chunk = after.steps - before.steps, cell.decodes, cell.chunk
    grown = after.tokens - before.tokens
    if steps < 1 or grown != steps * cell.tokens:
        raise UnevenSteps(f"{cell.name}: {steps} steps had {grown} tokens: must be {cell.tokens} each")
    decoded = decodes * (before.steps - start.steps)
    prefilled = before.tokens - start.tokens - decoded
    # Attention reads what was computed before and in this step.
    kv_tokens = steps * (context + decoded) + decodes * steps * (steps + 1) // 2
    pairs = 0
    if chunk:
        first, chunks = prefilled // chunk, cell.prompt // chunk
        if prefilled % chunk:
            raise UnevenSteps(f"{cell.name}: {prefilled} tokens of prompts: must be chunks of {chunk}")
        for index in range(first, first + steps):
            begin = index % chunks * chunk
            kv_tokens += begin + chunk
            pairs += chunk * (2 * begin + chunk + 1) // 2
    work = StepWork(chunk, decodes, round(kv_tokens / steps), round(pairs / steps))
    return StepSample(cell.name, work, (after.seconds - before.seconds) / steps)
