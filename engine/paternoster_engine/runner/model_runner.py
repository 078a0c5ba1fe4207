"""One step: tensors from the batch, the model's forward pass, a token for each row that samples."""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from paternoster_engine.core.batch import Batch, BlockCopy, ScheduledRequest
from paternoster_engine.model.llama import Llama
from paternoster_engine.runner.kv_pool import copy_blocks
from paternoster_engine.runner.step_input import HostStep, attention_order, host_step
from paternoster_engine.runner.tell_continuations import tell_continuations
from paternoster_engine.runner.tell_logprobs import tell_prompts, tell_sampled
from paternoster_engine.sampling.device_sampler import DeviceSampler
from paternoster_engine.sampling.row_sampler import RowSampler
from paternoster_engine.sampling.sampler import Sampler


class ModelRunner:
    """Owns the model and the KV cache; knows nothing of queues."""

    def __init__(
        self, model: Llama, kv_cache: Sequence[torch.Tensor], sampler: Sampler | DeviceSampler | RowSampler
    ) -> None:
        """``kv_cache``: one tensor a layer, from :func:`allocate_kv_cache`."""
        self._model = model
        self._kv_cache = kv_cache
        self._sampler = sampler

    def execute(self, batch: Batch) -> list[int | None]:
        """Sampled token of each scheduled item, None where the item does not sample."""
        return self.prepare(batch)()

    def prepare(self, batch: Batch) -> Callable[[], list[int | None]]:
        """Read now what the step needs of block tables; the call, in any thread, is :meth:`execute`."""
        order = attention_order(batch.scheduled)
        return partial(self._compute, batch, order, host_step(order))

    @torch.inference_mode()
    def _compute(self, batch: Batch, order: Sequence[ScheduledRequest], step: HostStep) -> list[int | None]:
        if batch.copies:
            self._copy(batch.copies)
        if not order:
            return []
        sampling = [item.request for item in order if item.samples]
        logits = self._forward(step)
        if len(logits) > len(sampling):
            tell_prompts(logits[len(sampling) :], order)
            logits = logits[: len(sampling)]
        sampled = self._sampler.sample(logits, sampling) if sampling else []
        tell_sampled(logits, sampling, sampled)
        tell_continuations(logits, sampling)
        tokens = dict(zip(sampling, sampled, strict=True))
        return [tokens[item.request] if item.samples else None for item in batch.scheduled]

    def _forward(self, step: HostStep) -> torch.Tensor:
        return self._model.forward(step.on_device(self._kv_cache[0], self._model.plan_attention), self._kv_cache)

    def _copy(self, copies: Sequence[BlockCopy]) -> None:
        """Within the KV cache, before the pass."""
        copy_blocks(self._kv_cache, copies)
