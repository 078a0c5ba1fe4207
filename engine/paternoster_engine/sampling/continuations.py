"""The most likely next tokens of a beam, for a search to choose from."""

from collections.abc import Iterator, Sequence

import torch

from paternoster_engine.sampling.logprobs import best_tokens

Continuations = list[tuple[int, float]]


def best_continuations(logits: torch.Tensor, counts: Sequence[int]) -> Iterator[Continuations]:
    """The ``counts[i]`` best tokens of row ``i`` of ``logits [rows, vocab]`` with their log probabilities, best first.

    By a log-softmax in float32; of equals the lower id comes first. No more than there are in the vocabulary.
    """
    scores = logits.float()
    yield from best_tokens(scores, scores.logsumexp(-1, keepdim=True), counts)
