"""A scheduler's batch made into plain numbers, and these into tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.model.adapters.lora_adapter import LoraAdapter
from paternoster_engine.model.step import StepInput
from paternoster_engine.runner.collect_logprobs import prompt_rows
from paternoster_kernels import RaggedBatch, pick_kernel
from paternoster_kernels.lora_batch import LoraBatch, LoraMatrices
from paternoster_kernels.upload import upload_tensor

Plan = Callable[[RaggedBatch, torch.Tensor], Any]
"""Makes what an attention reads of a step and any layer's KV cache."""


def attention_order(scheduled: Sequence[ScheduledRequest]) -> list[ScheduledRequest]:
    """Single tokens first, longest first: sequences that attention can take together become neighbours.

    Rows of one adapter are neighbours as well.
    """

    def place(item: ScheduledRequest) -> tuple[bool, bytes, int]:
        adapter = item.request.spec.adapter
        return item.num_tokens > 1, b"" if adapter is None else adapter.digest, -item.stop

    return sorted(scheduled, key=place)


@dataclass(frozen=True, slots=True)
class HostStep:
    """One step in plain numbers: what every rank of a model needs of it."""

    token_ids: list[int]
    positions: list[int]
    sample_rows: list[int]
    """Tokens whose logits are wanted."""
    ragged: Sequence[RaggedBatch]
    """Sequences in the blocks of each group of layers."""
    adapters: Sequence[tuple[LoraMatrices | None, int]] = ()
    """Adapter and number of tokens one after another; empty where none has an adapter."""

    def on_device(self, cache: torch.Tensor, plan_attention: Plan | None = None) -> StepInput:
        """Copy to tensors on the device of ``cache``, any layer's KV cache.

        ``plan_attention``: the model's own; what :func:`pick_kernel` gives when not given.
        """
        device = cache.device
        plan = plan_attention or pick_kernel("plan_attention", device)
        return StepInput(
            token_ids=upload_tensor(torch.tensor(self.token_ids), device),
            positions=upload_tensor(torch.tensor(self.positions), device),
            sample_rows=upload_tensor(torch.tensor(self.sample_rows, dtype=torch.int64), device),
            attention=[plan(ragged, cache) for ragged in self.ragged],
            lora=LoraBatch(self.adapters) if self.adapters else None,
        )


def host_step(scheduled: Sequence[ScheduledRequest], num_groups: int = 1) -> HostStep:
    """``scheduled`` in the order given, for a model with ``num_groups`` groups of layers.

    Logits are wanted of the rows that sample, those after each proposed token among them, and after all of these of the
    items' :func:`prompt_rows`.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    sample_rows: list[int] = []
    logprob_rows: list[int] = []
    for item in scheduled:
        token_ids += item.tokens
        positions += range(item.start, item.stop)
        if item.samples:
            sample_rows += range(len(token_ids) - 1 - len(item.proposed), len(token_ids))
        if item.num_tokens > 1 or not item.samples:
            first = len(token_ids) - item.stop
            logprob_rows += [first + position for position in prompt_rows(item)]
    query_lens, seq_lens = [item.num_tokens for item in scheduled], [item.stop for item in scheduled]
    ragged = [
        RaggedBatch(query_lens, seq_lens, [item.request.block_table.block_ids[group::num_groups] for item in scheduled])
        for group in range(num_groups)
    ]
    return HostStep(token_ids, positions, sample_rows + logprob_rows, ragged, _adapters_of(scheduled))


def _adapters_of(scheduled: Sequence[ScheduledRequest]) -> Sequence[tuple[LoraMatrices | None, int]]:
    """Neighbours of one adapter together."""
    if all(item.request.spec.adapter is None for item in scheduled):
        return ()
    segments: list[tuple[LoraMatrices | None, int]] = []
    for item in scheduled:
        adapter = item.request.spec.adapter
        matrices = None
        if adapter is not None:
            assert isinstance(adapter, LoraAdapter), "the runner applies what the server has read"
            matrices = adapter.matrices
        if segments and segments[-1][0] is matrices:
            segments[-1] = matrices, segments[-1][1] + item.num_tokens
        else:
            segments.append((matrices, item.num_tokens))
    return segments
