"""The most likely next tokens of a beam, for a search to choose from."""

from collections.abc import Iterator, Sequence

import torch

Continuations = list[tuple[int, float]]


def best_continuations(logits: torch.Tensor, counts: Sequence[int]) -> Iterator[Continuations]:
    """The ``counts[i]`` best tokens of row ``i`` of ``logits [rows, vocab]`` with their log probabilities, best first.

    By a log-softmax in float32; of equals the lower id comes first. No more than there are in the vocabulary.
    """
    scores = logits.float()
    total = scores.logsumexp(-1, keepdim=True)
    best = scores.topk(min(max(counts), scores.shape[-1]), dim=-1)
    for ids, values, count in zip(best.indices.tolist(), (best.values - total).tolist(), counts, strict=True):
        yield sorted(zip(ids, values, strict=True), key=lambda pair: (-pair[1], pair[0]))[:count]
