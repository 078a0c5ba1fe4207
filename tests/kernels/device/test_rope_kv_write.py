"""The fused rotation and cache write, and the plain cache write, against their references in float64."""

import pytest
import torch
from tests.kernels.device.guard_bands import poison

from paternoster_kernels import RaggedBatch, scaled_cache
from paternoster_kernels.device_batch import plan_attention
from paternoster_kernels.reference.kv_cache import kv_write as plain_reference
from paternoster_kernels.reference.kv_cache import rope_kv_write as reference
from paternoster_kernels.triton.kv_cache.kv_write import kv_write
from paternoster_kernels.triton.kv_cache.rope_kv_write import rope_kv_write

ROUNDING = {torch.float32: 1e-6, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def table(length: int, rotary_dim: int, generator: torch.Generator) -> torch.Tensor:
    angles = 6.3 * torch.rand(length, rotary_dim // 2, generator=generator, device=generator.device)
    return torch.cat((angles.cos(), angles.sin()), -1)


def slots_for(tokens: int, places: int, generator: torch.Generator) -> torch.Tensor:
    """Distinct places outside block 0's 32, the first token's first of a block, one token without any."""
    free = 32 + torch.randperm(places - 32, generator=generator, device=generator.device)
    slots = torch.cat((free.new_tensor([64]), free[free != 64][: tokens - 1]))
    slots[tokens // 2] = -1
    return slots


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(
    ("kv_heads", "group", "head_dim", "rotary_dim"), [(3, 3, 64, 64), (1, 7, 80, 32), (2, 1, 96, 96), (1, 8, 256, 128)]
)
def test_rotates_and_writes(
    kv_heads: int, group: int, head_dim: int, rotary_dim: int, dtype: torch.dtype, generator: torch.Generator
) -> None:
    tokens, device = 7, generator.device
    rotary_table = table(50, rotary_dim, generator)
    positions = torch.randint(50, (tokens,), generator=generator, device=device)
    slots = slots_for(tokens, 4 * 32, generator)
    width = (group + 2) * kv_heads * head_dim
    buffer = torch.randn(tokens, width + 5, generator=generator, device=device).to(dtype)
    qkv, before = buffer[:, :width], buffer.clone()
    cache = poison((4, kv_heads, 32, 2 * head_dim), dtype, device)
    exact, exact_cache = qkv.double(), cache.double()
    reference(exact, positions, rotary_table.double(), exact_cache, slots)

    rope_kv_write(qkv, positions, rotary_table, cache, slots)
    queries = group * kv_heads * head_dim
    torch.testing.assert_close(qkv[:, :queries].double(), exact[:, :queries], rtol=ROUNDING[dtype], atol=1e-6)
    assert torch.equal(buffer[:, queries:], before[:, queries:])
    assert torch.equal(qkv[tokens // 2], before[tokens // 2, :width])
    # What was not written is still poison, in both.
    torch.testing.assert_close(cache.double(), exact_cache, rtol=ROUNDING[dtype], atol=1e-6, equal_nan=True)
    assert exact_cache.isnan().sum() == exact_cache.numel() - (tokens - 1) * 2 * kv_heads * head_dim


@pytest.mark.parametrize("stored", [torch.int8, torch.float8_e4m3fn], ids=["int8", "fp8"])
def test_quantized_cache(stored: torch.dtype, generator: torch.Generator) -> None:
    """The scale is the nearest in bfloat16, and each number within half a step of the format of what it stands for."""
    tokens, kv_heads, head_dim, device = 9, 2, 64, generator.device
    rotary_table = table(50, head_dim, generator)
    positions = torch.randint(50, (tokens,), generator=generator, device=device)
    slots = slots_for(tokens, 4 * 32, generator)
    qkv = torch.randn(tokens, 4 * kv_heads * head_dim, generator=generator, device=device)
    qkv[3] = 0  # a scale of zero
    plain = torch.zeros(4, kv_heads, 32, 2 * head_dim, dtype=torch.float64, device=device)
    reference(qkv.double(), positions, rotary_table.double(), plain, slots)

    cache = torch.zeros(*plain.shape[:3], scaled_cache.token_width(head_dim, stored), device=device).to(stored)
    other = cache.clone()
    scales = scaled_cache.view_scales(cache).fill_(float("nan"))
    rope_kv_write(qkv, positions, rotary_table, cache, slots)
    written = ~scales.isnan()
    assert written.sum() == 2 * kv_heads * (tokens - 1)
    largest = plain.unflatten(-1, (2, -1)).abs().amax(-1).transpose(2, 3)
    limit = scaled_cache.LIMITS[stored]
    torch.testing.assert_close(scales[written].double(), largest[written] / limit, rtol=2.0**-8, atol=0)
    scales.nan_to_num_(0.0)
    got = scaled_cache.gather_tokens(cache, torch.arange(4, device=device), torch.float64)
    # int8: half a step of 1/127, of which there are as many; e4m3: three bits of mantissa, half of its smallest step.
    most = largest.transpose(2, 3)[..., None]
    step = most * (0.5 / 127) if stored == torch.int8 else plain.abs().unflatten(-1, (2, -1)) * 2.0**-4
    off = (got - plain).abs().unflatten(-1, (2, -1))
    assert (off <= step * (1 + 2.0**-7) + most / 448 * 2.0**-10 + 1e-9).all()
    # And the reference stores the same numbers but for ties of rounding.
    reference(qkv.clone(), positions, rotary_table, other, slots)
    assert (other.view(torch.int8) == cache.view(torch.int8)).float().mean() > 0.99
    # So does the write without a rotation.
    keys, values = torch.randn(2, tokens, kv_heads, head_dim, generator=generator, device=device)
    for write, target in ((kv_write, cache), (plain_reference, other)):
        write(keys, values, target, slots)
    assert (other.view(torch.int8) == cache.view(torch.int8)).float().mean() > 0.99


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_kv_write_stores_slices(dtype: torch.dtype, generator: torch.Generator) -> None:
    device = generator.device
    cache = poison((6, 3, 32, 2 * 80), dtype, device)
    plan = plan_attention(RaggedBatch([1, 33, 2], [33, 33, 40], [[1, 4], [2, 3], [5, 1]]), cache)
    assert plan.slots.tolist() == [4 * 32, *range(64, 97), 32 + 6, 32 + 7]
    heads = torch.randn(36, 9, 80, generator=generator, device=device).to(dtype)
    keys, values = heads[:, 3:6], heads[:, 6:]
    kv_write(keys, values, cache, plan.slots)
    got = cache[plan.slots // 32, :, plan.slots % 32]
    assert torch.equal(got, torch.cat((keys, values), -1))
    assert (~cache.isnan()).sum() == 36 * 3 * 160


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.int8, torch.float8_e4m3fn], ids=str)
def test_a_head_that_is_not_finite_gets_a_key_of_nan_and_a_value_of_zero(
    stored: torch.dtype, generator: torch.Generator
) -> None:
    """So that its weight of 0 makes it nothing for those that do not see it."""
    keys, values = torch.randn(2, 6, 2, 64, generator=generator, device=generator.device)
    keys[0, 1, 3] = values[2, 0, 63] = float("nan")
    keys[3, 0, 0] = values[4, 1, 5] = float("-inf")
    broken = torch.zeros(6, 2, dtype=torch.bool, device=generator.device)
    broken[[0, 2, 3, 4], [1, 0, 0, 1]] = True
    slots = torch.arange(6, device=generator.device)
    for write in (kv_write, plain_reference):
        cache = torch.zeros(1, 2, 32, scaled_cache.token_width(64, stored), device=generator.device).to(stored)
        write(keys, values, cache, slots)
        got = scaled_cache.gather_tokens(cache, slots[:1], torch.float32)[0, :, :6].transpose(0, 1)
        for cached, written, filling in zip(got.chunk(2, -1), (keys, values), (float("nan"), 0.0), strict=True):
            assert torch.equal(cached[broken].isnan(), torch.full_like(cached[broken], filling).isnan())
            assert torch.equal(cached[broken].nan_to_num(1.0), torch.full_like(cached[broken], filling).nan_to_num(1.0))
            torch.testing.assert_close(cached[~broken], written[~broken], rtol=0.1, atol=0.05)
