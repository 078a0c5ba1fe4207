"""What one layer's attention takes on a CPU, in plain torch and in C++, with keys and values in bfloat16 and in int8.

    python benchmarks engine.attention --batch 16 --context 1024 --json result.json

Processor time of one thread, the least of several rounds in turns: each sequence's next token, and a prompt of
``--prompt`` tokens. Several layers' caches are read one after another, so that keys come from memory as in a model.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from harness.arguments import RunnerParser
from harness.results import write_json
from paternoster_kernels import RaggedBatch, reference
from paternoster_kernels.cpu import attention
from paternoster_kernels.cpu.library import load_library
from paternoster_kernels.scaled_cache import is_scaled, token_width, view_scales

BF16 = torch.bfloat16
BLOCK_SIZE = 32
CACHE_BYTES = 2**26
"""Bytes of all layers together, in bfloat16: more than a core's caches."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of a layer's attention."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False


SHAPES = (
    Shape("SmolLM2 135M", 9, 3, 64),
    Shape("Llama 3 8B", 32, 8, 128),
    Shape("gpt-oss 20B, sinks", 64, 8, 64, sinks=True),
    Shape("gpt-oss 20B, sinks and window", 64, 8, 64, window=128, sinks=True),
    Shape("Gemma 2 2B, cap", 8, 4, 256, softcap=50.0),
)
WAYS = ("torch, bfloat16", "C++, bfloat16", "C++, int8")


def layers(shape: Shape, batch: RaggedBatch, way: str) -> Callable[[], None]:
    """All layers' attention of a step, once, and how many there are."""
    stored = torch.int8 if way.endswith("int8") else BF16
    blocks = 1 + sum(len(table) for table in batch.block_tables)
    width = token_width(shape.head_dim, stored)
    caches = []
    for _ in range(count_of(shape, blocks)):
        cache = torch.empty(blocks, shape.kv_heads, BLOCK_SIZE, width, dtype=stored)
        if is_scaled(cache):
            view_scales(cache.random_(-127, 128)).fill_(0.01)
        else:
            cache.normal_()
        caches.append(cache)
    queries = torch.randn(sum(batch.query_lens), shape.heads, shape.head_dim).to(BF16)
    options: dict[str, Any] = {"window": shape.window, "softcap": shape.softcap}
    if shape.sinks:
        options["sinks"] = torch.randn(shape.heads).to(BF16)
    ops = reference if way.startswith("torch") else attention
    plan = ops.plan_attention(batch, caches[0])

    def run() -> None:
        for cache in caches:
            ops.paged_attention(queries, cache, plan, shape.head_dim**-0.5, **options)

    return run


def count_of(shape: Shape, blocks: int) -> int:
    """Layers that fill :data:`CACHE_BYTES`."""
    return max(1, CACHE_BYTES // (blocks * shape.kv_heads * BLOCK_SIZE * 2 * shape.head_dim * BF16.itemsize))


def measured(shape: Shape, batch: RaggedBatch, rounds: int) -> dict[str, float]:
    """Least milliseconds of a layer, by way."""
    runs = {way: layers(shape, batch, way) for way in WAYS}
    blocks = 1 + sum(len(table) for table in batch.block_tables)
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds + 1):
        for way, run in runs.items():
            started = time.process_time()
            run()
            best[way] = min(best[way], time.process_time() - started)
    return {way: 1e3 * seconds / count_of(shape, blocks) for way, seconds in best.items()}


def step(query_lens: list[int], seq_lens: list[int]) -> RaggedBatch:
    tables, used = [], 1
    for length in seq_lens:
        blocks = -(-length // BLOCK_SIZE)
        tables.append(list(range(used, used + blocks)))
        used += blocks
    return RaggedBatch(query_lens, seq_lens, tables)


def main() -> int:
    parser = RunnerParser(__doc__, json="write every figure")
    parser.add_number("--batch", 16, "sequences")
    parser.add_number("--context", 1024, "tokens of each")
    parser.add_number("--prompt", 512, "tokens of a prompt")
    parser.add_number("--rounds", 5, "timed turns")
    options = parser.parse_args()
    found = load_library()
    if found is None:
        parser.error("there are no native operations here to compare plain torch with")
    torch.set_num_threads(1)
    steps = {
        f"{options.batch} x {options.context}": step([1] * options.batch, [options.context] * options.batch),
        f"prompt of {options.prompt}": step([options.prompt], [options.prompt]),
    }
    rows: list[dict[str, Any]] = []
    table = Table("attention", "tokens", *(f"{way}, ms" for way in WAYS))
    for shape in SHAPES:
        for kind, batch in steps.items():
            times = measured(shape, batch, options.rounds)
            rows.append({"shape": shape.name, "tokens": kind, **times})
            table.add_row(shape.name, kind, *(f"{times[way]:.2f}" for way in WAYS))
    Console().print(table)
    write_json(options.json, rows)
    return 0
