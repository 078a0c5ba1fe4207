"""Compile every kernel for GPUs that need not be there: registers, spills and shared memory of each.

``python benchmarks gpu.compile`` on any Linux machine with torch and Triton. Exit code 1 when a kernel does not
compile, or asks for more shared memory than the architecture gives a block.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from gpu.ahead_of_time import compile_for, recorded
from gpu.cases import cases

SHARED_LIMITS = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}
"""Bytes that a block may ask for, by compute capability (CUDA C++ Programming Guide)."""


@contextmanager
def undrawn() -> Iterator[None]:
    """Normal numbers are what the memory holds: a compiler is told of shapes, and drawing them takes longer than it."""

    def empty(*shape: Any, generator: torch.Generator) -> torch.Tensor:
        return torch.empty(*shape)

    with mock.patch.object(torch, "randn", empty):
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--capability", type=int, nargs="+", choices=SHARED_LIMITS, default=list(SHARED_LIMITS))
    parser.add_argument("--json", type=Path, help="also write the table here")
    arguments = parser.parse_args()
    print(f"{'case':<32} {'kernel':<28} {'sm':>4} {'registers':>9} {'spilled B':>9} {'shared B':>9}", flush=True)
    rows, failed = [], 0
    for case in cases():
        with recorded() as launches, undrawn():
            case.launch(case.arguments(torch.Generator().manual_seed(17)))
        for launch in launches:
            for capability in arguments.capability:
                if capability < case.min_capability:
                    print(f"{case.name:<32} {launch.kernel.__name__:<28} {capability:>4} has no fp8 e4m3", flush=True)
                    continue
                compiled = compile_for(launch, capability)
                too_much = compiled.shared_bytes > SHARED_LIMITS[capability]
                failed += too_much
                print(
                    f"{case.name:<32} {compiled.kernel:<28} {capability:>4} {compiled.registers:>9} "
                    f"{compiled.spill_bytes:>9} {compiled.shared_bytes:>9}{'  TOO MUCH SHARED' * too_much}",
                    flush=True,
                )
                rows.append({
                    "case": case.name, "kernel": compiled.kernel, "capability": capability,
                    "registers": compiled.registers, "spill_bytes": compiled.spill_bytes,
                    "shared_bytes": compiled.shared_bytes,
                })  # fmt: skip
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{len(rows)} compiled, {sum(row['spill_bytes'] > 0 for row in rows)} spill, {failed} do not fit")
    return 1 if failed else 0
