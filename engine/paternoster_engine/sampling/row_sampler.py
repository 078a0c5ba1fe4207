"""Sampling row by row, for torch rounds a row's noise by where in its batch it lies."""

from collections.abc import Sequence

import torch

from paternoster_engine.core.matching import SamplerRow
from paternoster_engine.sampling.sampler import Sampler


class RowSampler:
    """The tokens that :class:`Sampler` gives each row alone."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def sample(self, logits: torch.Tensor, requests: Sequence[SamplerRow]) -> list[int]:
        """One token for each row of ``logits [rows, vocab]``; row ``i`` belongs to ``requests[i]``."""
        return [
            token
            for row, request in enumerate(requests)
            for token in self._sampler.sample(logits[row : row + 1], [request])
        ]
