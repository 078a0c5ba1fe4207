"""A layer's mixture of experts."""

from collections.abc import Iterator

import torch

from paternoster_engine.model.config import Experts
from paternoster_engine.model.layers.linear import Linear
from paternoster_engine.model.layers.lora import LayerLora
from paternoster_engine.model.layers.mlp import GATES, Mlp
from paternoster_engine.model.layers.parts import Parts


class MixtureOfExperts:
    """Each token through the experts that score best for it, weighted by their shares (arXiv 2401.04088).

    Every rank has a part of each expert's columns, so tokens go nowhere.
    """

    def __init__(self, parts: Parts, prefix: str, experts: Experts) -> None:
        self._ranks = parts.ranks
        self._experts = experts
        # Exact also where matrices are int8: a score decides which expert runs.
        self._router = parts.exact_linear(prefix + "gate", bias=parts.config.block.router_bias)
        prefixes = [f"{prefix}experts.{number}." for number in range(experts.count)]
        grouped = parts.device.type == "cuda"
        self._products = Grouped(parts, prefixes) if grouped else OneByOne(parts, prefixes)

    def __call__(self, hidden: torch.Tensor, lora: LayerLora | None = None) -> torch.Tensor:
        """Output of the experts, which is added to the residual, ``[tokens, hidden]``; experts have no adapters."""
        scores = self._router(hidden).float().softmax(-1)
        shares, chosen = scores.topk(self._experts.active, -1)
        if self._experts.normalized:
            shares = shares / shares.sum(-1, keepdim=True)
        return self._ranks.all_reduce(self._products(hidden, shares, chosen))

    def iterate_linears(self) -> Iterator[Linear]:
        """The router, and every expert's matrices where they are multiplied with one by one."""
        yield self._router
        yield from self._products.iterate_linears()


class OneByOne:
    """Expert after expert, each with matrices of its own: packed, or in int8."""

    def __init__(self, parts: Parts, prefixes: list[str]) -> None:
        self._mlps = [Mlp(parts, prefix) for prefix in prefixes]

    def __call__(self, hidden: torch.Tensor, shares: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Sum over the ``chosen`` experts ``[tokens, active]``, weighted by ``shares``; this rank's part."""
        out = torch.zeros_like(hidden)
        for number in chosen.unique().tolist():
            rows, places = (chosen == number).nonzero(as_tuple=True)
            part = self._mlps[number].compute_part(hidden[rows])
            # In the order of the experts for every token, whatever else is in the step.
            out.index_add_(0, rows, part * shares[rows, places].unsqueeze(1).to(part.dtype))
        return out

    def iterate_linears(self) -> Iterator[Linear]:
        for mlp in self._mlps:
            yield from mlp.iterate_linears()


class Grouped:
    """All experts in two products, without a word from the host: a captured graph runs them too."""

    def __init__(self, parts: Parts, prefixes: list[str]) -> None:
        self._gate_up = torch.stack(
            [parts.load_weight(prefix + "gate_proj", prefix + "up_proj") for prefix in prefixes]
        )
        self._down = torch.stack([parts.load_weight(prefix + "down_proj") for prefix in prefixes])
        self._biases: tuple[torch.Tensor, ...] = ()
        if parts.config.block.mlp_bias:
            ups = [parts.load_bias(prefix + "gate_proj", prefix + "up_proj") for prefix in prefixes]
            self._biases = torch.stack(ups), torch.stack([parts.load_bias(prefix + "down_proj") for prefix in prefixes])
        self._gate = parts.pick_operation(GATES[parts.config.block.activation])
        self._matmul = parts.pick_operation("grouped_matmul")
        self._experts = torch.arange(len(prefixes) + 1, device=parts.device)

    def __call__(self, hidden: torch.Tensor, shares: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Run the experts, see :class:`OneByOne`."""
        tokens, active = chosen.shape
        by_expert, order = chosen.flatten().sort(stable=True)
        starts = torch.searchsorted(by_expert, self._experts, out_int32=True)
        gate_up = self._matmul(hidden, self._gate_up, order // active, starts)
        if self._biases:
            gate_up += self._biases[0][by_expert]
        own = torch.arange(tokens * active, device=hidden.device)
        products = self._matmul(self._gate(gate_up), self._down, own, starts)
        if self._biases:
            products += self._biases[1][by_expert]
        by_token = torch.empty_like(products)
        by_token[order] = products
        weighted = by_token.view(tokens, active, -1).float() * shares.unsqueeze(-1)
        return weighted.sum(1).to(hidden.dtype)

    def iterate_linears(self) -> Iterator[Linear]:
        yield from ()
