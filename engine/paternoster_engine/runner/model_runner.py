"""One step: tensors from the batch, the model's forward pass, a token for each row that samples."""

from collections.abc import Sequence

import torch

from paternoster_engine.core.batch import Batch
from paternoster_engine.model.llama import Llama
from paternoster_engine.runner.step_input import attention_order, build_step_input
from paternoster_engine.runner.tell_logprobs import tell_prompts, tell_sampled
from paternoster_engine.sampling.sampler import Sampler


class ModelRunner:
    """Owns the model and the KV cache; knows nothing of queues."""

    def __init__(self, model: Llama, kv_cache: Sequence[torch.Tensor], sampler: Sampler) -> None:
        """``kv_cache``: one tensor a layer, from :func:`allocate_kv_cache`."""
        self._model = model
        self._kv_cache = kv_cache
        self._sampler = sampler

    @torch.inference_mode()
    def execute(self, batch: Batch) -> list[int | None]:
        """Sampled token of each scheduled item, None where the item does not sample."""
        order = attention_order(batch.scheduled)
        step = build_step_input(order, self._kv_cache[0])
        sampling = [item.request for item in order if item.samples]
        logits = self._model.forward(step, self._kv_cache)
        if len(logits) > len(sampling):
            tell_prompts(logits[len(sampling) :], order)
            logits = logits[: len(sampling)]
        sampled = self._sampler.sample(logits, sampling) if sampling else []
        tell_sampled(logits, sampling, sampled)
        tokens = dict(zip(sampling, sampled, strict=True))
        return [tokens[item.request] if item.samples else None for item in batch.scheduled]
