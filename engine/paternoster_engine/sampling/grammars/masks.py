"""Masks of the tokens that may come next, for sequences with a grammar, ``allowed_token_ids`` or ``bad_words``."""

from collections.abc import Sequence

import torch

from paternoster_engine.core.matching import ProposedRow, SamplerRow
from paternoster_engine.core.request import Request
from paternoster_engine.sampling.allowed_tokens import within_allowed
from paternoster_kernels.token_masks import TokenMasks

NOTHING_LEFT = "allowed_token_ids, bad_words and what the answer must be leave no token that may come next"


def masks_of(requests: Sequence[SamplerRow], device: torch.device) -> TokenMasks | None:
    """Masks of the rows whose grammars do not allow every token; None if there are none.

    A request with a fault has no mask, for no token would be right: the runner drops its row. Nor has a proposed row
    that no token can follow.
    """
    masks = []
    for row, request in enumerate(requests):
        mask: bytes | None = b""
        if request.matcher is not None:
            mask = request.matcher.allowed_mask(request)
        if mask is not None and request.params.allowed_tokens:
            mask = within_allowed(mask, request)
            if mask is None and isinstance(request, Request):
                request.fault = NOTHING_LEFT
        if mask:
            masks.append((row, mask))
        elif mask is None and isinstance(request, ProposedRow):
            request.is_unsatisfiable = True
    return TokenMasks.pack_masks(masks, device)
