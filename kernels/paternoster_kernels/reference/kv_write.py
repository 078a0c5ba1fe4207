"""Storing a step's keys and values in the KV cache."""

import torch

from paternoster_kernels.reference.plan_attention import AttentionPlan


def kv_write(keys: torch.Tensor, values: torch.Tensor, cache: torch.Tensor, plan: AttentionPlan) -> None:
    """Write ``keys`` and ``values`` ``[tokens, kv_heads, head_dim]`` to the places ``plan`` gives them.

    ``cache``: one layer's ``[blocks, kv_heads, block_size, 2 * head_dim]``.
    """
    width = cache.shape[-1]
    rows = torch.cat((keys, values), -1).view(-1, width)
    cache.view(-1, width).index_copy_(0, plan.write_rows, rows)
