"""The embedding table, whole or as the ranks' parts of the vocabulary."""

import torch

from paternoster_engine.process_group import Ranks
from paternoster_kernels import pick_kernel
from paternoster_kernels.blocks import Strips


class VocabParallelEmbedding:
    """Rows ``rank * rows`` onwards of the table; the other ranks have the rest."""

    def __init__(self, weight: torch.Tensor | Strips, ranks: Ranks) -> None:
        """``weight``: ``[rows, hidden]``, as many rows on every rank; in strips it is read as it is."""
        self.weight = weight
        self._ranks = ranks
        self._count = weight.out_features if isinstance(weight, Strips) else len(weight)

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        """``[tokens, hidden]`` on every rank for ``token_ids [tokens]``."""
        if self._ranks.size == 1:
            return self._look_up_rows(token_ids)
        rows = token_ids - self._ranks.rank * self._count
        absent = (rows < 0) | (rows >= self._count)
        part = self._look_up_rows(rows.masked_fill(absent, 0)).masked_fill_(absent.unsqueeze(-1), 0)
        # All ranks but one add zero: exact.
        return self._ranks.all_reduce(part)

    def _look_up_rows(self, rows: torch.Tensor) -> torch.Tensor:
        if isinstance(self.weight, Strips):
            found: torch.Tensor = pick_kernel("strip_rows", rows.device)(self.weight, rows)
            return found
        return self.weight[rows]
