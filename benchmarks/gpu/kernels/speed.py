"""How fast the kernels are: beside this GPU's own ceilings, and beside torch's attention."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional
from triton.testing import do_bench

from gpu.budget import Ceilings
from gpu.kernels.expert_products import GPT_OSS_20B, QWEN3_30B, products
from paternoster_kernels import RaggedBatch, pick_kernel
from paternoster_kernels.device_batch import plan_attention
from paternoster_kernels.reference.quantized_matmul import quantize_int4, quantize_weight
from paternoster_kernels.scaled_cache import is_scaled, token_width, view_scales

CUDA = torch.device("cuda")
BF16 = torch.bfloat16
MIXTURES = (QWEN3_30B, GPT_OSS_20B)
MIXTURE_TOKENS = (1, 16, 64, 256, 8192)


@dataclass(frozen=True, slots=True)
class Speed:
    """One kernel's time, and what it is a share of."""

    name: str
    milliseconds: float
    bound: str
    """``memory`` or ``compute``: the ceiling that applies."""
    achieved: float
    """Bytes or floating-point operations a second."""
    of_ceiling: float
    torch_milliseconds: float | None = None
    """Time of torch's own kernels on contiguous memory; None where torch has no such operation."""


def _seconds(call: Callable[[], object]) -> float:
    """Median time of a call with a cold L2 cache."""
    return float(do_bench(call, warmup=50, rep=200, return_mode="median")) / 1e3


def ceilings() -> Ceilings:
    """A copy of 1 GiB, and a product of two 8192 x 8192 bfloat16 matrices."""
    source = torch.empty(2**29, dtype=BF16, device=CUDA).normal_()
    target = torch.empty_like(source)
    copied = 2 * source.nbytes / _seconds(lambda: target.copy_(source))
    left, right = (torch.randn(8192, 8192, dtype=BF16, device=CUDA) for _ in range(2))
    return Ceilings(copied, 2 * 8192**3 / _seconds(lambda: left @ right))


def speeds(limits: Ceilings) -> Iterator[Speed]:
    """Each kernel at shapes of a model of 8 billion parameters: 32 query heads, 8 key heads, head size 128.

    The products of experts are at those of models that have some.
    """
    yield from _decode_speeds(limits)
    yield from _prefill_speeds(limits)
    yield from _row_speeds(limits)
    yield from _weight_speeds(limits)
    yield from _expert_speeds(limits)


def _by_memory(
    name: str, limits: Ceilings, moved: float, call: Callable[[], object], other: Callable[[], object] | None = None
) -> Speed:
    seconds = _seconds(call)
    rate = moved / seconds
    torch_ms = _seconds(other) * 1e3 if other else None
    return Speed(name, seconds * 1e3, "memory", rate, rate / limits.bytes_per_second, torch_ms)


def _by_compute(
    name: str, limits: Ceilings, flops: float, call: Callable[[], object], other: Callable[[], object] | None = None
) -> Speed:
    seconds = _seconds(call)
    rate = flops / seconds
    torch_ms = _seconds(other) * 1e3 if other else None
    return Speed(name, seconds * 1e3, "compute", rate, rate / limits.flops_per_second, torch_ms)


def _decode_speeds(limits: Ceilings) -> Iterator[Speed]:
    heads, kv_heads, head_dim, block_size = 32, 8, 128, 64
    attention = pick_kernel("unified_attention", CUDA)
    for rows, length in ((1, 1024), (1, 32_768), (8, 4096), (64, 4096), (256, 1024)):
        count = -(-length // block_size)
        tables = (1 + torch.randperm(rows * count)).view(rows, count).tolist()
        for stored in (BF16, torch.int8):
            width = token_width(head_dim, stored)
            cache = torch.zeros(rows * count + 1, kv_heads, block_size, width, device=CUDA).normal_().to(stored)
            if is_scaled(cache):
                view_scales(cache).uniform_()
            batch = plan_attention(RaggedBatch([1] * rows, [length] * rows, tables), cache)
            queries = torch.randn(rows, heads, head_dim, dtype=BF16, device=CUDA)
            moved = rows * length * kv_heads * width * cache.itemsize

            run = partial(attention, queries, cache, batch, head_dim**-0.5)
            other = None
            if stored == BF16:
                query = queries.view(rows, heads, 1, head_dim)
                keys, values = (torch.randn(rows, kv_heads, length, head_dim, dtype=BF16, device=CUDA) for _ in "kv")
                other = partial(functional.scaled_dot_product_attention, query, keys, values, enable_gqa=True)
            name = f"decode {rows} x {length} {'bf16' if stored == BF16 else 'int8'} cache"
            yield _by_memory(name, limits, moved, run, other)


def _prefill_speeds(limits: Ceilings) -> Iterator[Speed]:
    heads, kv_heads, head_dim, block_size = 32, 8, 128, 64
    attention = pick_kernel("unified_attention", CUDA)
    for rows, length in ((16, 512), (4, 2048), (1, 8192)):
        count = length // block_size
        tables = (1 + torch.randperm(rows * count)).view(rows, count).tolist()
        cache = torch.randn(rows * count + 1, kv_heads, block_size, 2 * head_dim, dtype=BF16, device=CUDA)
        batch = plan_attention(RaggedBatch([length] * rows, [length] * rows, tables), cache)
        queries = torch.randn(rows * length, heads, head_dim, dtype=BF16, device=CUDA)
        query = queries.view(rows, length, heads, head_dim).transpose(1, 2).contiguous()
        keys, values = (torch.randn(rows, kv_heads, length, head_dim, dtype=BF16, device=CUDA) for _ in "kv")

        run = partial(attention, queries, cache, batch, head_dim**-0.5)
        other = partial(functional.scaled_dot_product_attention, query, keys, values, is_causal=True, enable_gqa=True)
        # Two products of half a square each.
        flops = 2 * rows * heads * length * length * head_dim
        yield _by_compute(f"prefill {rows} x {length}", limits, flops, run, other)


def _row_speeds(limits: Ceilings) -> Iterator[Speed]:
    rows, size = 8192, 4096
    x, residual, gate_up = (torch.randn(rows, width, dtype=BF16, device=CUDA) for width in (size, size, 2 * 14_336))
    weight = torch.ones(size, dtype=BF16, device=CUDA)
    rms_norm, silu_mul = pick_kernel("rms_norm", CUDA), pick_kernel("silu_mul", CUDA)
    yield _by_memory("residual and norm", limits, 4 * x.nbytes, lambda: rms_norm(x, weight, 1e-5, residual))
    yield _by_memory("silu and product", limits, 1.5 * gate_up.nbytes, lambda: silu_mul(gate_up))

    vocab, count = 128_256, 64
    logits = 3 * torch.randn(count, vocab, dtype=torch.float32, device=CUDA)
    sample, argmax = pick_kernel("sample", CUDA), pick_kernel("argmax", CUDA)
    whole = torch.arange(count, device=CUDA)
    ones = torch.ones(count, device=CUDA)
    yield _by_memory("argmax", limits, logits.nbytes, lambda: argmax(logits), lambda: logits.argmax(-1))
    for name, top_k, top_p in (("plain", 0, 1.0), ("top-k 50", 50, 1.0), ("top-p 0.9", 0, 0.9)):
        filters = (ones, torch.full_like(whole, top_k).int(), top_p * ones, 0 * ones, whole, whole)
        # One reading of the logits is what any sampler must do: passes beyond it show as a smaller share.
        yield _by_memory(f"sample, {name}", limits, logits.nbytes, partial(sample, logits, *filters))

    cache = torch.zeros(400, 8, 64, 256, dtype=BF16, device=CUDA)
    pairs = torch.randperm(400, device=CUDA).view(200, 2)
    copy_blocks = pick_kernel("copy_blocks", CUDA)
    yield _by_memory("copy blocks", limits, cache.nbytes, lambda: copy_blocks(cache, cache, pairs))
    qkv = torch.randn(8192, 48 * 128, dtype=BF16, device=CUDA)
    table = torch.rand(8192, 128, device=CUDA)
    positions, slots = torch.arange(8192, device=CUDA), 64 + torch.randperm(8192, device=CUDA)
    write = pick_kernel("rope_kv_write", CUDA)
    moved = 2 * qkv.nbytes + positions.nbytes + slots.nbytes + table.nbytes
    yield _by_memory("rope and kv write", limits, moved, lambda: write(qkv, positions, table, cache, slots))


def _weight_speeds(limits: Ceilings) -> Iterator[Speed]:
    weight = torch.randn(14_336, 4096, device=CUDA) / 64
    plain = weight.to(BF16)
    eight, scales = quantize_weight(weight, torch.int8)
    four = quantize_int4(weight, 128)
    by_eight, by_four = pick_kernel("weight_only_matmul", CUDA), pick_kernel("int4_matmul", CUDA)
    for rows in (1, 16, 64):
        x = torch.randn(rows, 4096, dtype=BF16, device=CUDA)

        other = partial(functional.linear, x, plain)
        yield _by_memory(f"int8 weights, {rows} rows", limits, eight.nbytes, partial(by_eight, x, eight, scales), other)
        packed_bytes = sum(part.nbytes for part in four)
        yield _by_memory(f"int4 weights, {rows} rows", limits, packed_bytes, partial(by_four, x, *four), other)


def _expert_speeds(limits: Ceilings) -> Iterator[Speed]:
    """Speeds against the lower ceiling: few tokens are bound by matrices that are read, many by products."""
    matmul = pick_kernel("grouped_matmul", CUDA)
    for mixture in MIXTURES:
        for tokens in MIXTURE_TOKENS:
            generator = torch.Generator(CUDA).manual_seed(tokens)
            for product in products(mixture, tokens, BF16, matmul, generator):
                by_memory = product.moved / limits.bytes_per_second > product.flops / limits.flops_per_second
                rate = (_by_memory, product.moved) if by_memory else (_by_compute, product.flops)
                yield rate[0](product.name, limits, rate[1], product.call, product.one_by_one)
