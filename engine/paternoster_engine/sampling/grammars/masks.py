"""The masks of sequences that must be of a grammar."""

from collections.abc import Sequence

import torch

from paternoster_engine.core.matching import ProposedRow, Row
from paternoster_kernels.token_masks import TokenMasks


def masks_of(requests: Sequence[Row], device: torch.device) -> TokenMasks | None:
    """Of the rows whose grammars do not allow every token; None if there are none.

    A request whose matcher has come to a fault has none, for there is no right token: whoever samples drops it. Nor has
    a proposed row that no token can follow.
    """
    masks = []
    for row, request in enumerate(requests):
        if request.matcher is None:
            continue
        mask = request.matcher.allowed(request)
        if mask:
            masks.append((row, mask))
        elif mask is None and isinstance(request, ProposedRow):
            request.stuck = True
    return TokenMasks.of(masks, device)
