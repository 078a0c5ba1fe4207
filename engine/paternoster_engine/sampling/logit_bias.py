"""OpenAI's ``logit_bias``: numbers that a request adds to the logits of some tokens."""

from collections.abc import Sequence

import torch

from paternoster_engine.core.matching import SamplerRow
from paternoster_kernels.upload import upload_tensor


def add_logit_bias(logits: torch.Tensor, requests: Sequence[SamplerRow]) -> None:
    """Change ``logits [rows, vocab]`` (float32) in place; row ``i`` belongs to ``requests[i]``."""
    biases = [(row, token, bias) for row, request in enumerate(requests) for token, bias in request.params.logit_bias]
    if not biases:
        return
    rows, tokens, values = zip(*biases, strict=True)
    # A request names a token once: no element is added to twice, so the order of sums does not matter.
    place = tuple(upload_tensor(torch.tensor(column), logits.device) for column in (rows, tokens))
    logits.index_put_(place, upload_tensor(torch.tensor(values, dtype=torch.float32), logits.device), accumulate=True)
