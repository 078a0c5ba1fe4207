"""Choosing the next token of every row that samples."""

from collections.abc import Sequence

import torch

from paternoster_engine.core.matching import SamplerRow
from paternoster_engine.sampling.columns import make_columns
from paternoster_engine.sampling.filters import Filters, find_thresholds
from paternoster_engine.sampling.grammars.masks import masks_of
from paternoster_engine.sampling.logit_bias import add_logit_bias
from paternoster_engine.sampling.penalties import apply_penalties, forbid_early_end
from paternoster_engine.sampling.random import gumbel_noise, row_keys
from paternoster_kernels import pick_kernel
from paternoster_kernels.reference import sample as plain_sample


class Sampler:
    """Stateless: a token is a function of the row's logits, the request's settings, its seed and its position."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._argmax = pick_kernel("argmax", device)
        self._device_sample = pick_kernel("sample", device)
        """Used where it is a kernel: what there is in plain torch here takes less time than the reference."""
        self._token_ids = torch.arange(vocab_size, dtype=torch.int32, device=device).unsqueeze(0)

    def sample(self, logits: torch.Tensor, requests: Sequence[SamplerRow]) -> list[int]:
        """One token for each row of ``logits [rows, vocab]``; row ``i`` belongs to ``requests[i]``."""
        masks = masks_of(requests, logits.device)
        adjusted = [i for i, request in enumerate(requests) if _adjusts_logits(request)]
        drawing = [i for i, request in enumerate(requests) if not request.params.greedy]
        if adjusted:
            logits = logits.to(torch.float32, copy=True)
            add_logit_bias(logits, requests)
            for i in adjusted:
                apply_penalties(logits[i], requests[i])
                forbid_early_end(logits[i], requests[i])
        if self._device_sample is not plain_sample and (drawing or masks):
            drawn: list[int] = self._device_sample(logits, *make_columns(requests, logits.device), masks).tolist()
            return drawn
        if masks:
            logits = masks.forbid_tokens(logits)
        if not drawing:
            tokens: list[int] = self._argmax(logits).tolist()
            return tokens
        if len(drawing) == len(requests):
            return self._draw_tokens(logits, requests)
        tokens = self._argmax(logits).tolist()
        for i, token in zip(drawing, self._draw_tokens(logits[drawing], [requests[i] for i in drawing]), strict=True):
            tokens[i] = token
        return tokens

    def _draw_tokens(self, logits: torch.Tensor, requests: Sequence[SamplerRow]) -> list[int]:
        """Sample by Gumbel-max: the best of score plus noise is a draw from the softmax."""
        device = logits.device
        temperature = torch.tensor([[request.params.temperature] for request in requests], device=device)
        scores = logits.float() / temperature
        keys = row_keys([r.seed for r in requests], [r.num_tokens for r in requests], device)
        noisy = gumbel_noise(keys, self._token_ids).add_(scores)
        filtered = [i for i, request in enumerate(requests) if _has_filters(request)]
        if filtered:
            params = [requests[i].params for i in filtered]
            filters = Filters(
                top_k=torch.tensor([[p.top_k] for p in params], device=device),
                top_p=torch.tensor([[p.top_p] for p in params], device=device),
                min_p=torch.tensor([[p.min_p] for p in params], device=device),
            )
            scores = scores[filtered]
            noisy[filtered] = noisy[filtered].masked_fill_(scores < find_thresholds(scores, filters), float("-inf"))
        tokens: list[int] = self._argmax(noisy).tolist()
        return tokens


def _has_filters(request: SamplerRow) -> bool:
    params = request.params
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def _adjusts_logits(request: SamplerRow) -> bool:
    params = request.params
    return params.changes_logits or len(request.output) < params.min_tokens
