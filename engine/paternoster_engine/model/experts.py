"""A layer's mixture of experts."""

from collections.abc import Iterator

import torch

from paternoster_engine.model.config import Experts
from paternoster_engine.model.linear import Linear
from paternoster_engine.model.mlp import Mlp
from paternoster_engine.model.parts import Parts


class MixtureOfExperts:
    """Each token through the experts that score best for it, weighted by their shares (arXiv 2401.04088).

    Every rank has a part of each expert's columns, so tokens go nowhere.
    """

    def __init__(self, parts: Parts, prefix: str, experts: Experts) -> None:
        self._ranks = parts.ranks
        self._experts = experts
        # Exact also where matrices are int8: a score decides which expert is asked.
        self._router = parts.exact(prefix + "gate")
        self._mlps = [Mlp(parts, f"{prefix}experts.{number}.") for number in range(experts.count)]

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """What is added to the residual, ``[tokens, hidden]``."""
        shares, chosen = self._choose(hidden)
        out = torch.zeros_like(hidden)
        for number in chosen.unique().tolist():
            rows, places = (chosen == number).nonzero(as_tuple=True)
            part = self._mlps[number].part(hidden[rows])
            # In the order of the experts for every token, whatever else is in the step.
            out.index_add_(0, rows, part * shares[rows, places].unsqueeze(1))
        return self._ranks.sum(out)

    def linears(self) -> Iterator[Linear]:
        """The router and every expert's matrices."""
        yield self._router
        for mlp in self._mlps:
            yield from mlp.linears()

    def _choose(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Shares and numbers of the active experts, each ``[tokens, active]``."""
        scores = self._router(hidden).float().softmax(-1)
        shares, chosen = scores.topk(self._experts.active, -1)
        if self._experts.normalized:
            shares = shares / shares.sum(-1, keepdim=True)
        return shares.to(hidden.dtype), chosen
