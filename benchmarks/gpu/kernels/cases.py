"""One call of every operation at real shapes: what is compiled ahead of time, and checked on a GPU."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import torch

from gpu.kernels.expert_products import GPT_OSS_20B, QWEN3_30B, Mixture, route
from paternoster_kernels import OPS, DeviceBatch, RaggedBatch
from paternoster_kernels.device_batch import plan_attention
from paternoster_kernels.reference.quantized_matmul import quantize_int4, quantize_weight
from paternoster_kernels.registry import triton_op
from paternoster_kernels.scaled_cache import LIMITS, quantize_cache, token_width

BF16, FP32, FP8, INT8 = torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.int8
FEW_OF_GPT_OSS = replace(GPT_OSS_20B, experts=5)
"""All 32 take 4 GiB in float64, and each is computed by itself."""


@dataclass(frozen=True, slots=True)
class Case:
    """Arguments of one call, and how exact its result must be."""

    name: str
    op: str
    arguments: Callable[[torch.Generator], tuple[Any, ...]]
    """Made on the host; a trailing dict holds keyword arguments."""
    bound: float
    """Largest error over one plus the exact value's size; for whole numbers and 8 bits, the share that may differ."""
    written: tuple[int, ...] = ()
    """Arguments that hold the result; none when it is returned."""
    min_capability: int = 80
    """Compute capability the case needs, times ten."""
    variant: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments that the kernel alone takes: another way to the reference's numbers."""

    def launch(self, arguments: tuple[Any, ...]) -> Any:
        """Run the Triton kernels."""
        return _call(partial(triton_op(self.op), **self.variant), arguments)

    def error(self, device: torch.device) -> float:
        """Error of the Triton kernel on ``device`` against the reference in float64 on the host."""
        arguments = self.arguments(torch.Generator().manual_seed(17))
        own = _mapped(arguments, lambda tensor: tensor.to(device, copy=True))
        exact = _mapped(arguments, lambda tensor: tensor.double() if tensor.dtype in (BF16, FP32) else tensor.clone())
        got, expected = self.launch(own), _call(OPS[self.op], exact)
        pairs = [(own[i], exact[i]) for i in self.written] or [(got, expected)]
        return max(_off(left.cpu(), right) for left, right in pairs)


def _call(op: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    if arguments and isinstance(arguments[-1], dict):
        return op(*arguments[:-1], **arguments[-1])
    return op(*arguments)


def _mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """``value`` with every tensor in it changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {name: _mapped(item, change) for name, item in value.items()}
    if isinstance(value, DeviceBatch):
        return replace(value, **{f.name: _mapped(getattr(value, f.name), change) for f in fields(value)})
    return value


def _off(got: torch.Tensor, expected: torch.Tensor) -> float:
    if expected.dtype in LIMITS:
        got, expected = got.view(torch.int8), expected.view(torch.int8)
    if not expected.is_floating_point():
        return (got != expected).double().mean().item()
    return ((got.double() - expected.double()).abs() / (1 + expected.double().abs())).max().item()


def _normal(generator: torch.Generator, *shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*shape, generator=generator).to(dtype)


def _attention(
    heads: int, kv_heads: int, head_dim: int, block_size: int, query_lens: list[int], seq_lens: list[int],
    dtype: torch.dtype = BF16, stored: torch.dtype | None = None, sinks: bool = False, **options: Any,
) -> Callable[[torch.Generator], tuple[Any, ...]]:  # fmt: skip
    def make(generator: torch.Generator) -> tuple[Any, ...]:
        counts = [-(-length // block_size) for length in seq_lens]
        ids = (1 + torch.randperm(sum(counts), generator=generator)).tolist()
        tables = [[ids.pop() for _ in range(count)] for count in counts]
        shape = (sum(counts) + 1, kv_heads, block_size, 2 * head_dim)
        numbers = torch.randn(shape, generator=generator)
        cache = numbers.to(dtype) if stored is None else quantize_cache(numbers, stored)
        batch = plan_attention(RaggedBatch(query_lens, seq_lens, tables), cache)
        queries = _normal(generator, sum(query_lens), heads, head_dim, dtype=dtype)
        own = {"sinks": _normal(generator, heads)} if sinks else {}
        return queries, cache, batch, head_dim**-0.5, options | own

    return make


def _attention_cases() -> Iterator[Case]:
    mixed = ([1, 1, 1, 33, 200], [31, 33, 3000, 33, 700])
    decode = ([1] * 6, [1, 32, 257, 1000, 4000, 9000])
    shapes = [(9, 3, 64, 32), (32, 8, 128, 64), (16, 16, 128, 32), (28, 4, 128, 64), (8, 1, 256, 64), (12, 4, 96, 32)]
    for heads, kv_heads, head_dim, block_size in shapes:
        for kind, lengths in (("mixed", mixed), ("decode", decode)):
            name = f"attention {kind} {heads}/{kv_heads}x{head_dim}"
            yield Case(name, "unified_attention", _attention(heads, kv_heads, head_dim, block_size, *lengths), 2e-2)
    common = (32, 8, 128, 64, *mixed)
    exact = _attention(9, 3, 64, 32, *mixed, dtype=FP32)
    yield Case("attention mixed 9/3x64 fp32", "unified_attention", exact, 1e-4)
    one_pass = {"one_pass": True}
    for kind, lengths in (("mixed", mixed), ("decode", decode)):
        arguments = _attention(32, 8, 128, 64, *lengths)
        yield Case(f"attention one pass {kind}", "unified_attention", arguments, 2e-2, variant=one_pass)
    yield Case("attention one pass fp32", "unified_attention", exact, 1e-4, variant=one_pass)
    yield Case("attention window", "unified_attention", _attention(*common, window=500), 2e-2)
    yield Case("attention sinks and window", "unified_attention", _attention(*common, window=128, sinks=True), 2e-2)
    yield Case("attention softcap", "unified_attention", _attention(*common, softcap=30.0), 2e-2)
    yield Case("attention int8 cache", "unified_attention", _attention(*common, stored=INT8), 2e-2)
    fp8 = _attention(*common, stored=FP8)
    yield Case("attention fp8 cache", "unified_attention", fp8, 2e-2, min_capability=89)


def _rope(stored: torch.dtype | None = None) -> Callable[[torch.Generator], tuple[Any, ...]]:
    def make(generator: torch.Generator) -> tuple[Any, ...]:
        tokens, heads, kv_heads, head_dim = 37, 32, 8, 128
        angles = torch.rand(4096, head_dim // 2, generator=generator) * 6.3
        cache = torch.zeros(6, kv_heads, 64, token_width(head_dim, stored or BF16)).to(stored or BF16)
        slots = 64 + torch.randperm(5 * 64, generator=generator)[:tokens]
        positions = torch.randint(4096, (tokens,), generator=generator)
        table = torch.cat((angles.cos(), angles.sin()), -1)
        qkv = _normal(generator, tokens, (heads + 2 * kv_heads) * head_dim)
        return qkv, positions, table, cache, slots

    return make


def _kv_write(generator: torch.Generator) -> tuple[Any, ...]:
    cache = torch.zeros(9, 8, 64, 256, dtype=BF16)
    plan = plan_attention(RaggedBatch([1, 200], [64, 300], [[3], [1, 2, 4, 5, 8]]), cache)
    heads = _normal(generator, 201, 48, 128)
    return heads[:, 32:40], heads[:, 40:], cache, plan.slots


def _sampling(generator: torch.Generator) -> tuple[Any, ...]:
    rows, vocab = 64, 49_152
    every = torch.arange(rows)
    return (
        3 * torch.randn(rows, vocab, generator=generator),
        torch.tensor([0.0, 0.7, 1.0, 1.3])[every % 4],
        torch.tensor([0, 1, 50, 0, 1000])[every % 5].int(),
        torch.tensor([1.0, 0.9, 0.5])[every % 3],
        torch.tensor([0.0, 0.05])[every // 8 % 2],
        torch.randint(2**62, (rows,), generator=generator),
        every * 13,
    )


def _penalties(generator: torch.Generator) -> tuple[Any, ...]:
    rows, vocab = 16, 49_152
    counts = torch.randint(-6, 4, (rows, vocab), generator=generator).clamp(min=0).int()
    bits = torch.randint(-(2**31), 2**31, (rows, vocab // 32), generator=generator).int()
    logits = _normal(generator, rows, vocab)
    return (
        logits,
        counts,
        bits,
        torch.arange(rows).flip(0),
        *(torch.rand(rows, generator=generator) + 0.5 for _ in "rpf"),
    )


def _advance(generator: torch.Generator) -> tuple[Any, ...]:
    rows, block_size = 200, 32
    seq_lens = torch.randint(1, 200, (rows,), generator=generator).tolist()
    tables = torch.randint(1, 999, (rows, 7), generator=generator).tolist()
    batch = plan_attention(RaggedBatch([1] * rows, seq_lens, tables), torch.zeros(1, 1, block_size, 2))
    batch.slots[::5] = -1
    sampled = torch.randint(49_152, (rows,), generator=generator)
    return sampled, torch.zeros(rows, dtype=torch.int64), torch.tensor(seq_lens) - 1, batch, block_size


def _lora(generator: torch.Generator) -> tuple[Any, ...]:
    starts = torch.tensor([0, 1, 40, 40, 90, 128]).int()
    down = _normal(generator, 4, 16, 4096) / 64
    return _normal(generator, 128, 4096), down, starts, torch.tensor([3, 0, 1, -1, 2]).int()


def _expand(generator: torch.Generator) -> tuple[Any, ...]:
    # Numbers that bfloat16 holds, as the kernel rounds its input to the adapter's format.
    shrunk = _normal(generator, 128, 16).float()
    starts, adapters = _lora(generator)[2:]
    up = _normal(generator, 4, 4096, 16)
    return shrunk, up, torch.tensor([1.0, 0.5, 2.0, 1.0]), starts, adapters, _normal(generator, 128, 4096)


def _weights(rows: int, stored: torch.dtype) -> Callable[[torch.Generator], tuple[Any, ...]]:
    return lambda g: (_normal(g, rows, 4096), *quantize_weight(torch.randn(4096, 4096, generator=g) / 64, stored))


def _plain_weights(rows: int) -> Callable[[torch.Generator], tuple[Any, ...]]:
    return lambda g: (_normal(g, rows, 4096), _normal(g, 4096, 4096) / 64)


def _experts(mixture: Mixture, tokens: int) -> Callable[[torch.Generator], tuple[Any, ...]]:
    """The first product of a layer."""

    def make(generator: torch.Generator) -> tuple[Any, ...]:
        weight = _normal(generator, mixture.experts, 2 * mixture.width, mixture.hidden) / mixture.hidden**0.5
        return _normal(generator, tokens, mixture.hidden), weight, *route(mixture, tokens, generator)

    return make


def _int4(rows: int) -> Callable[[torch.Generator], tuple[Any, ...]]:
    return lambda g: (_normal(g, rows, 4096), *quantize_int4(torch.randn(4096, 4096, generator=g) / 64, 128))


def _norm(generator: torch.Generator) -> tuple[Any, ...]:
    return _normal(generator, 37, 4096), _normal(generator, 4096), 1e-5, _normal(generator, 37, 4096)


def _head_norm(generator: torch.Generator) -> tuple[Any, ...]:
    return _normal(generator, 37, (40 + 2 * 8) * 128), _normal(generator, 128), _normal(generator, 128), 8, 1e-6


def _copy(generator: torch.Generator) -> tuple[Any, ...]:
    source = _normal(generator, 50, 8, 64, 256)
    return source, torch.zeros_like(source), torch.stack((torch.randperm(50), torch.randperm(50)), 1)[:20]


def cases() -> list[Case]:
    """Every operation with a Triton kernel, in the variants that compile to different code."""
    return [
        *_attention_cases(),
        Case("rope and kv write", "rope_kv_write", _rope(), 1e-2, written=(0, 3)),
        Case("rope and kv write, int8", "rope_kv_write", _rope(INT8), 1.5e-2, written=(0, 3)),
        Case("rope and kv write, fp8", "rope_kv_write", _rope(FP8), 1.5e-2, written=(0, 3), min_capability=89),
        Case("kv write", "kv_write", _kv_write, 0.0, written=(2,)),
        Case("residual and norm", "rms_norm", _norm, 3e-2),
        Case("query and key norm", "head_norm", _head_norm, 3e-2, written=(0,)),
        Case("silu and product", "silu_mul", lambda g: (_normal(g, 37, 3072),), 1e-2),
        Case("gelu and product", "gelu_mul", lambda g: (_normal(g, 37, 3072),), 1e-2),
        Case("sample", "sample", _sampling, 0.05),
        Case("argmax", "argmax", lambda g: (_normal(g, 64, 49_152),), 0.0),
        Case("penalties", "apply_penalties", _penalties, 1e-5),
        Case("next step", "advance_decode", _advance, 0.0, written=(1, 2)),
        Case("weights, 1 row", "matmul", _plain_weights(1), 1e-2),
        Case("weights, 128 rows", "matmul", _plain_weights(128), 1e-2),
        Case("experts of Qwen3, 16 tokens", "grouped_matmul", _experts(QWEN3_30B, 16), 1e-2),
        Case("experts of Qwen3, 512 tokens", "grouped_matmul", _experts(QWEN3_30B, 512), 1e-2),
        Case("experts of gpt-oss, 64 tokens", "grouped_matmul", _experts(FEW_OF_GPT_OSS, 64), 1e-2),
        Case("int8 weights, 1 row", "weight_only_matmul", _weights(1, INT8), 1e-2),
        Case("int8 weights, 128 rows", "weight_only_matmul", _weights(128, INT8), 1e-2),
        Case("fp8 weights, 1 row", "weight_only_matmul", _weights(1, FP8), 1e-2, min_capability=89),
        Case("int4 weights, 1 row", "int4_matmul", _int4(1), 1e-2),
        Case("int4 weights, 128 rows", "int4_matmul", _int4(128), 1e-2),
        Case("lora shrink", "lora_shrink", _lora, 1e-4),
        Case("lora expand", "lora_expand", _expand, 1e-2, written=(5,)),
        Case("copy blocks", "copy_blocks", _copy, 0.0, written=(1,)),
    ]
