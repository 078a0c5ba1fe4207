"""The embedding table, whole or as the ranks' parts of the vocabulary."""

import torch

from paternoster_engine.parallel.ranks import Ranks


class VocabParallelEmbedding:
    """Rows ``rank * len(weight)`` onwards of the table; the other ranks have the rest."""

    def __init__(self, weight: torch.Tensor, ranks: Ranks) -> None:
        """``weight``: ``[rows, hidden]``, as many rows on every rank."""
        self.weight = weight
        self._ranks = ranks

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        """``[tokens, hidden]`` on every rank for ``token_ids [tokens]``."""
        if self._ranks.size == 1:
            return self.weight[token_ids]
        rows = token_ids - self._ranks.rank * len(self.weight)
        absent = (rows < 0) | (rows >= len(self.weight))
        part = self.weight[rows.masked_fill(absent, 0)].masked_fill_(absent.unsqueeze(-1), 0)
        # All ranks but one add zero: exact.
        return self._ranks.sum(part)
