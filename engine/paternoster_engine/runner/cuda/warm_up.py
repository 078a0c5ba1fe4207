"""The steps that need most and launch every kernel: run before the first request, so that none waits for a compiler."""

from typing import Protocol

from paternoster_engine.core.batch import Batch, ScheduledRequest
from paternoster_engine.core.block_table import BlockTable
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.runner.protocol import SynchronousRunner

BLOCK = 1
"""All tokens lie in this block: what is computed does not matter, only what it needs."""
PARAMS = SamplingParams(max_tokens=1, top_p=0.9, repetition_penalty=1.1)


class StepLimits(Protocol):
    """What bounds a step, in sequences and tokens."""

    @property
    def max_num_seqs(self) -> int: ...
    @property
    def max_batched_tokens(self) -> int: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def block_size(self) -> int: ...


def warm_up(runner: SynchronousRunner, limits: StepLimits, num_groups: int = 1) -> None:
    """Run both steps on ``runner``, whose pool is empty; raises what it raises where memory does not suffice.

    ``num_groups``: of the model's layers.
    """
    runner.execute(largest_step(limits, num_groups))
    runner.execute(longest_decode(limits, num_groups))


def largest_step(limits: StepLimits, num_groups: int = 1) -> Batch:
    """Make the step with the most sequences and tokens, each sequence sampling with penalties.

    The last sequence is as long as one may be, the others are prompts: attention then splits keys, which takes memory
    by the longest sequence for every sequence, and runs its kernel for prompts.
    """
    tokens = min(limits.max_batched_tokens, limits.max_num_seqs * limits.max_model_len)
    rows = min(limits.max_num_seqs, tokens)
    counts = [tokens // rows + (row < tokens % rows) for row in range(rows)]
    lengths = [*counts[:-1], limits.max_model_len]
    scheduled = map(_last_tokens, range(rows), lengths, counts, [limits.block_size] * rows, [num_groups] * rows)
    return Batch(0, tuple(scheduled))


def longest_decode(limits: StepLimits, num_groups: int = 1) -> Batch:
    """One token of the longest sequence, by attention's kernel for decodes alone; and a copied block, as for beams."""
    longest = _last_tokens(0, limits.max_model_len, 1, limits.block_size, num_groups)
    return Batch(0, (longest,), copies=((BLOCK, BLOCK + 1),))


def _last_tokens(row: int, length: int, count: int, block_size: int, num_groups: int) -> ScheduledRequest:
    """The last ``count`` tokens of a sequence of ``length``."""
    blocks = [BLOCK] * (-(-length // block_size) * num_groups)
    request = Request(RequestSpec(f"warm-up-{row}", [0] * length, PARAMS), block_table=BlockTable(blocks))
    return ScheduledRequest(request, length - count, count, samples=True)
