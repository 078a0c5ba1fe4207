"""Check the GPU path on a machine with CUDA and torch: ``make gpu-check``.

Needs no network and no venv: torch and numpy are enough for the kernels. Exit code 0 when everything agreed, 1 when
something did not, 2 when there is no CUDA device to check.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / room) for room in ("kernels", "engine")]

import torch  # noqa: E402

from paternoster_kernels import RaggedBatch, pick  # noqa: E402

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
"""Largest difference from float64 on the CPU, over one plus the true value's size, for inputs of unit variance."""
BLOCK_SIZE, HEAD_DIM = 32, 64


def attention(device: torch.device, dtype: torch.dtype, heads: int, kv_heads: int) -> torch.Tensor:
    """A mixed step of decodes and prefills at block edges, through write and read of the paged cache."""
    generator = torch.Generator().manual_seed(7)
    query_lens, seq_lens = [1, 1, 1, 33, 20], [31, 32, 97, 33, 70]
    tables, used = [], 1
    for length in seq_lens:
        blocks = -(-length // BLOCK_SIZE)
        tables.append(list(range(used, used + blocks)))
        used += blocks
    shape = (used, kv_heads, BLOCK_SIZE, 2 * HEAD_DIM)
    cache = torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)
    tokens = sum(query_lens)
    queries, keys, values = (
        torch.randn(tokens, count, HEAD_DIM, generator=generator, dtype=torch.float64).to(device, dtype)
        for count in (heads, kv_heads, kv_heads)
    )
    plan = pick("plan_attention", device)(RaggedBatch(query_lens, seq_lens, tables), cache)
    pick("kv_write", device)(keys, values, cache, plan)
    out: torch.Tensor = pick("paged_attention", device)(queries, cache, plan, HEAD_DIM**-0.5)
    return out


def elementwise(op: str) -> Callable[[torch.device, torch.dtype], torch.Tensor]:
    """One of the operations on rows."""

    def run(device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        generator = torch.Generator().manual_seed(11)
        x = torch.randn(37, 1536, generator=generator, dtype=torch.float64).to(device, dtype)
        if op == "silu_mul":
            return pick(op, device)(x)  # type: ignore[no-any-return]
        return pick(op, device)(x, torch.ones(1536, device=device, dtype=dtype), 1e-5)  # type: ignore[no-any-return]

    return run


def main() -> int:
    if not torch.cuda.is_available():
        print(f"gpu-check: torch {torch.__version__} sees no CUDA device here: nothing was checked", file=sys.stderr)
        return 2
    device = torch.device("cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    checks: dict[str, Callable[[torch.device, torch.dtype], torch.Tensor]] = {
        f"attention {heads}/{kv}": lambda d, t, h=heads, k=kv: attention(d, t, h, k)  # type: ignore[misc]
        for heads, kv in ((9, 3), (8, 8), (32, 8), (7, 1))
    }
    checks |= {op: elementwise(op) for op in ("silu_mul", "rms_norm")}
    failed = 0
    for name, check in checks.items():
        truth = check(torch.device("cpu"), torch.float64)
        for dtype, allowed in TOLERANCE.items():
            began = time.perf_counter()
            off = ((check(device, dtype).double().cpu() - truth).abs() / (1 + truth.abs())).max().item()
            failed += off > allowed
            verdict = "ok" if off <= allowed else f"FAILED, more than {allowed:g}"
            print(f"{name:<16} {str(dtype)[6:]:<9} off by {off:.2e}  {verdict}  ({time.perf_counter() - began:.2f} s)")
    print(f"{2 * len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
