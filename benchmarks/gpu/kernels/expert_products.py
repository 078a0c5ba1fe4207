"""The two products of a mixture of experts, at the shapes of models that have one, and what each must move and do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional

Matmul = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Mixture:
    """One layer's."""

    name: str
    experts: int
    active: int
    hidden: int
    width: int


QWEN3_30B = Mixture("Qwen3-30B-A3B", experts=128, active=8, hidden=2048, width=768)
GPT_OSS_20B = Mixture("gpt-oss-20b", experts=32, active=4, hidden=2880, width=2880)


@dataclass(frozen=True, slots=True)
class Product:
    """One call."""

    name: str
    call: Callable[[], torch.Tensor]
    one_by_one: Callable[[], torch.Tensor]
    """Product of torch's for each expert."""
    moved: int
    """Bytes: the matrices of all experts that have a row, and rows in and out, each once."""
    flops: int


def route(mixture: Mixture, tokens: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and starts of ``grouped_matmul`` where each token takes any experts; pairs by expert."""
    drawn = torch.rand(tokens, mixture.experts, generator=generator, device=generator.device)
    by_expert, order = drawn.topk(mixture.active, -1).indices.flatten().sort(stable=True)
    edges = torch.arange(mixture.experts + 1, device=generator.device)
    return order // mixture.active, torch.searchsorted(by_expert, edges, out_int32=True)


def products(
    mixture: Mixture, tokens: int, dtype: torch.dtype, matmul: Matmul, generator: torch.Generator
) -> Iterator[Product]:
    """Gate and up of ``tokens``, then down of their pairs; on the generator's device."""
    rows, starts = route(mixture, tokens, generator)
    pairs = len(rows)
    own = torch.arange(pairs, device=generator.device)
    counts = starts.diff().tolist()
    num_experts = sum(count > 0 for count in counts)
    for name, pair_rows, height, outputs, inputs in (
        ("gate and up", rows, tokens, 2 * mixture.width, mixture.hidden),
        ("down", own, pairs, mixture.hidden, mixture.width),
    ):
        x = torch.randn(height, inputs, generator=generator, device=generator.device).to(dtype)
        weight = torch.empty(mixture.experts, outputs, inputs, dtype=dtype, device=generator.device)
        weight.normal_(0, inputs**-0.5, generator=generator)
        yield Product(
            f"{mixture.name} {name}, {tokens} tokens",
            partial(matmul, x, weight, pair_rows, starts),
            partial(_one_by_one, x, weight, pair_rows, counts),
            (num_experts * outputs * inputs + x.numel() + pairs * outputs) * dtype.itemsize,
            2 * pairs * outputs * inputs,
        )


def _one_by_one(x: torch.Tensor, weight: torch.Tensor, rows: torch.Tensor, counts: list[int]) -> torch.Tensor:
    parts = rows.split(counts)
    return torch.cat([functional.linear(x[part], weight[i]) for i, part in enumerate(parts) if len(part)])
