"""Choosing the next token of every row that samples by the device's kernels: nothing is read back but the tokens.

What penalties need is sent as tokens and made into tables on the device: a table is as wide as the vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import torch

from paternoster_engine.core.matching import SamplerRow
from paternoster_engine.sampling.columns import make_column, make_columns
from paternoster_engine.sampling.grammars.masks import masks_of
from paternoster_engine.sampling.logit_bias import add_logit_bias
from paternoster_engine.sampling.penalties import forbid_early_end
from paternoster_kernels import pick_kernel
from paternoster_kernels.upload import upload_tensor

BITS_PER_WORD = 32
"""Tokens whose presence in a prompt one word holds."""


class DeviceSampler:
    """The tokens of :class:`Sampler`, from ``sample`` and ``apply_penalties``; stateless as that."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sample = pick_kernel("sample", device)
        self._apply_penalties = pick_kernel("apply_penalties", device)

    def sample(self, logits: torch.Tensor, requests: Sequence[SamplerRow]) -> list[int]:
        """One token for each row of ``logits [rows, vocab]``; row ``i`` belongs to ``requests[i]``."""
        masks = masks_of(requests, self._device)
        logits = self._adjust_logits(logits, requests)
        tokens: list[int] = self._sample(logits, *make_columns(requests, self._device), masks).tolist()
        return tokens

    def _adjust_logits(self, logits: torch.Tensor, requests: Sequence[SamplerRow]) -> torch.Tensor:
        """``logits`` with biases and penalties and without ends that are too early; a copy where it has any."""
        penalised = [i for i, request in enumerate(requests) if request.params.has_penalties]
        early = [i for i, request in enumerate(requests) if len(request.output) < request.params.min_tokens]
        biased = any(request.params.logit_bias for request in requests)
        if not penalised and not early and not biased:
            return logits
        logits = logits.to(torch.float32, copy=True)
        add_logit_bias(logits, requests)
        if penalised:
            index = self._make_column(penalised, torch.int64)
            logits[index] = self._penalize_logits(logits[index], [requests[i] for i in penalised])
        for i in early:
            forbid_early_end(logits[i], requests[i])
        return logits

    def _penalize_logits(self, logits: torch.Tensor, requests: Sequence[SamplerRow]) -> torch.Tensor:
        vocab = logits.shape[1]
        params = [request.params for request in requests]
        # Only repetition looks at the prompt.
        prompts = [request.prompt if request.params.repetition_penalty != 1.0 else [] for request in requests]
        penalised: torch.Tensor = self._apply_penalties(
            logits,
            self._count_tokens([request.output for request in requests], vocab),
            self._mark_tokens(prompts, vocab),
            self._make_column(range(len(requests)), torch.int64),
            self._make_column([p.repetition_penalty for p in params], torch.float32),
            self._make_column([p.presence_penalty for p in params], torch.float32),
            self._make_column([p.frequency_penalty for p in params], torch.float32),
        )
        return penalised

    def _count_tokens(self, tokens: Sequence[Sequence[int]], vocab: int) -> torch.Tensor:
        """``[requests, vocab]`` int32: how often each token is in the request's ``tokens``."""
        counts = torch.zeros(len(tokens), vocab, dtype=torch.int32, device=self._device)
        places = self._flat_indices(tokens, vocab)
        counts.view(-1).scatter_add_(0, places, torch.ones_like(places, dtype=torch.int32))
        return counts

    def _mark_tokens(self, tokens: Sequence[Sequence[int]], vocab: int) -> torch.Tensor:
        """``[requests, ceil(vocab / 32)]`` int32: bit ``t % 32`` of word ``t // 32`` is 1 if token ``t`` is present."""
        words = -(-vocab // BITS_PER_WORD)
        present = torch.zeros(len(tokens), words, BITS_PER_WORD, dtype=torch.int32, device=self._device)
        present.view(-1).index_fill_(0, self._flat_indices(tokens, words * BITS_PER_WORD), 1)
        shifts = torch.arange(BITS_PER_WORD, dtype=torch.int32, device=self._device)
        return (present << shifts).sum(-1, dtype=torch.int32)

    def _flat_indices(self, tokens: Sequence[Sequence[int]], width: int) -> torch.Tensor:
        """Where the tokens of each request lie in a table ``[requests, width]``, flat; all that has to be uploaded."""
        flat = [np.asarray(row, dtype=np.int64) + i * width for i, row in enumerate(tokens)]
        return upload_tensor(torch.from_numpy(np.concatenate(flat)), self._device)

    def _make_column(self, values: Sequence[float], dtype: torch.dtype) -> torch.Tensor:
        return make_column(values, dtype, self._device)
