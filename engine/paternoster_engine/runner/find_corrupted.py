"""Find requests for which a step gave NaN, or infinite logits, log probabilities or vectors."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

import torch

from paternoster_engine.core.matching import SamplerRow
from paternoster_engine.core.request import Request, TokenLogprobs
from paternoster_kernels.reference.sample import NO_TOKEN


def without_token(rows: Sequence[SamplerRow], owners: Sequence[Request], sampled: Sequence[int]) -> set[Request]:
    """Return the ``owners`` of the ``rows`` for which no token could be sampled.

    A row behind proposed tokens does not count: if these prove right, it is sampled again.
    """
    return {
        owner
        for row, owner, token in zip(rows, owners, sampled, strict=True)
        if token == NO_TOKEN and row.num_proposed == 0 and not owner.is_unsatisfiable
    }


def with_infinite_logprobs(logprobs: Mapping[Request, Iterable[TokenLogprobs]]) -> set[Request]:
    """Return the requests with a log probability that is not finite."""
    return {request for request, each in logprobs.items() if not all(isfinite(token.logprob) for token in each)}


def with_infinite_vector(requests: Sequence[Request], vectors: torch.Tensor) -> set[Request]:
    """Return the requests whose row of ``vectors [len(requests), size]`` is not finite."""
    finite = vectors.isfinite().all(-1).tolist()
    return {request for request, whole in zip(requests, finite, strict=True) if not whole}
