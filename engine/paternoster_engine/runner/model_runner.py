"""One step: tensors from the batch, the model's forward pass, a token for each row that samples."""

from collections.abc import Sequence
from functools import partial

import torch

from paternoster_engine.core.batch import Batch, BlockCopy, ScheduledRequest, StepResult
from paternoster_engine.core.request import Request, TokenLogprobs
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.runner.collect_continuations import collect_continuations
from paternoster_engine.runner.collect_logprobs import collect_logprobs, collect_prompt_logprobs
from paternoster_engine.runner.find_corrupted import with_infinite_logprobs, without_token
from paternoster_engine.runner.kv_pool import HostMemory, copy_blocks
from paternoster_engine.runner.protocol import DeferredStep, SynchronousRunner
from paternoster_engine.runner.sampled_rows import sampled_rows
from paternoster_engine.runner.step_input import HostStep, attention_order, host_step
from paternoster_engine.sampling.device_sampler import DeviceSampler
from paternoster_engine.sampling.row_sampler import RowSampler
from paternoster_engine.sampling.sampler import Sampler
from paternoster_kernels.reference.sample import NO_TOKEN


class ModelRunner(SynchronousRunner):
    """Owns the model and the KV cache; has no queues."""

    def __init__(
        self,
        model: Decoder,
        kv_cache: Sequence[torch.Tensor],
        sampler: Sampler | DeviceSampler | RowSampler,
        host: HostMemory | None = None,
    ) -> None:
        """``kv_cache``: from :func:`allocate_kv_cache`. ``host``: for batches that swap."""
        self._model = model
        self._kv_cache = kv_cache
        self._sampler = sampler
        self._host = host

    def execute(self, batch: Batch) -> StepResult:
        return self.submit(batch).result()

    def submit(self, batch: Batch) -> DeferredStep:
        order = attention_order(batch.scheduled)
        return DeferredStep(partial(self._compute_batch, batch, order, self._host_step(order)))

    def _host_step(self, order: Sequence[ScheduledRequest]) -> HostStep:
        return host_step(order, len(self._model.config.layer_groups))

    @torch.inference_mode()
    def swap(self, batch: Batch) -> None:
        """Copy the batch's blocks to host memory and then those from there."""
        if not batch.swap_out and not batch.swap_in:
            return
        assert self._host is not None, "a batch swaps blocks and there is no host memory for them"
        if batch.swap_out:
            self._host.save(batch.swap_out)
        if batch.swap_in:
            self._host.load(batch.swap_in)

    @torch.inference_mode()
    def _compute_batch(self, batch: Batch, order: Sequence[ScheduledRequest], step: HostStep) -> StepResult:
        self.swap(batch)
        if batch.copies:
            self._copy(batch.copies)
        if not order:
            return StepResult()
        return self._build_result(batch, order, self._forward(step))

    def _build_result(self, batch: Batch, order: Sequence[ScheduledRequest], logits: torch.Tensor) -> StepResult:
        """``logits``: of the rows that sample, in ``order``, and then of those with logprobs of their prompts."""
        rows, owners = sampled_rows(order)
        prompt_logprobs: dict[Request, list[TokenLogprobs]] = {}
        if len(logits) > len(rows):
            prompt_logprobs = collect_prompt_logprobs(logits[len(rows) :], order)
            logits = logits[: len(rows)]
        sampled = self._sampler.sample(logits, rows) if rows else []
        corrupted = without_token(rows, owners, sampled) | with_infinite_logprobs(prompt_logprobs)
        tokens: dict[Request, list[int | None]] = {}
        for row, owner, token in zip(rows, owners, sampled, strict=True):
            tokens.setdefault(owner, []).append(None if row.is_unsatisfiable or token == NO_TOKEN else token)
        return StepResult(
            [tokens[item.request][0] if item.samples else None for item in batch.scheduled],
            further={request: more[1:] for request, more in tokens.items() if len(more) > 1},
            logprobs=collect_logprobs(logits, owners, sampled),
            prompt_logprobs=prompt_logprobs,
            continuations=collect_continuations(logits, owners),
            corrupted=corrupted,
        )

    def _forward(self, step: HostStep) -> torch.Tensor:
        return self._model.forward(step.on_device(self._kv_cache[0], self._model.plan_attention), self._kv_cache)

    def _copy(self, copies: Sequence[BlockCopy]) -> None:
        """Within the KV cache, before the pass."""
        copy_blocks(self._kv_cache, copies)
