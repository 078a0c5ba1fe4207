"""A decoder without a causal mask: it reads whole texts, as an encoder does, and keeps nothing of them."""

import torch
from torch.nn import functional

from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.encoders.encoder import TextBatch, pool_texts
from paternoster_engine.model.step import StepInput


class TextDecoder:
    """Computes vectors with a :class:`Decoder` whose config has a pooling."""

    def __init__(self, decoder: Decoder, device: torch.device) -> None:
        self._decoder = decoder
        self.device = device

    def compute_vectors(self, batch: TextBatch) -> torch.Tensor:
        """``[texts, size]`` float32, in the order of ``batch``, pooled as the model does it."""
        config = self._decoder.config
        assert config.pooling is not None
        every = torch.arange(len(batch.token_ids), device=self.device)
        step = StepInput(batch.token_ids, batch.positions, every, [batch.lengths] * len(config.layer_groups))
        pooled = pool_texts(self._decoder.forward(step, ()).float(), batch.lengths, config.pooling.mode)
        return functional.normalize(pooled) if config.pooling.normalized else pooled
