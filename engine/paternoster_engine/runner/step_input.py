"""A scheduler's batch made into tensors."""

from collections.abc import Sequence

import torch

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.model.step import StepInput
from paternoster_engine.runner.tell_logprobs import prompt_rows
from paternoster_kernels import RaggedBatch, pick


def attention_order(scheduled: Sequence[ScheduledRequest]) -> list[ScheduledRequest]:
    """Single tokens first, longest first: sequences that attention can take together become neighbours."""
    return sorted(scheduled, key=lambda item: (item.num_tokens > 1, -item.stop))


def build_step_input(scheduled: Sequence[ScheduledRequest], cache: torch.Tensor) -> StepInput:
    """Tensors for ``scheduled`` in the order given; ``cache`` is any layer's KV cache.

    Logits are wanted of the rows that sample, and after all of these of the items' :func:`prompt_rows`.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    sample_rows: list[int] = []
    telling_rows: list[int] = []
    for item in scheduled:
        token_ids += item.request.tokens(item.start, item.stop)
        positions += range(item.start, item.stop)
        if item.samples:
            sample_rows.append(len(token_ids) - 1)
        if item.num_tokens > 1 or not item.samples:
            first = len(token_ids) - item.stop
            telling_rows += [first + position for position in prompt_rows(item)]
    ragged = RaggedBatch(
        query_lens=[item.num_tokens for item in scheduled],
        seq_lens=[item.stop for item in scheduled],
        block_tables=[item.request.block_ids for item in scheduled],
    )
    device = cache.device
    return StepInput(
        token_ids=torch.tensor(token_ids, device=device),
        positions=torch.tensor(positions, device=device),
        sample_rows=torch.tensor(sample_rows + telling_rows, dtype=torch.int64, device=device),
        attention=pick("plan_attention", device)(ragged, cache),
    )
