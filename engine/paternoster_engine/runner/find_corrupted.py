"""Requests for which a step gave numbers that say nothing: NaN, or infinite logits, log probabilities or vectors."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

import torch

from paternoster_engine.core.matching import Row
from paternoster_engine.core.request import Request, TokenLogprobs
from paternoster_kernels.reference.sample import NO_TOKEN


def without_token(rows: Sequence[Row], owners: Sequence[Request], sampled: Sequence[int]) -> set[Request]:
    """``owners`` of the ``rows`` that were sampled from logits of which no token can be chosen.

    A row after proposed tokens counts for nothing: it is only so if these are right, and is sampled again then.
    """
    return {
        owner
        for row, owner, token in zip(rows, owners, sampled, strict=True)
        if token == NO_TOKEN and row.num_proposed == 0 and not owner.stuck
    }


def with_infinite(told: Mapping[Request, Iterable[TokenLogprobs]]) -> set[Request]:
    """Requests some of whose log probabilities are not finite."""
    return {request for request, each in told.items() if not all(isfinite(token.logprob) for token in each)}


def with_infinite_vector(requests: Sequence[Request], vectors: torch.Tensor) -> set[Request]:
    """Requests whose row of ``vectors [len(requests), size]`` is not finite."""
    finite = vectors.isfinite().all(-1).tolist()
    return {request for request, whole in zip(requests, finite, strict=True) if not whole}
