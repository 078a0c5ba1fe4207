"""Compile every kernel for GPUs that need not be there: registers, spills and shared memory of each.

``python benchmarks gpu.compile`` on any Linux machine with torch and Triton; ``--check`` holds each figure to the one
in ``benchmarks/gpu/compiled.json``, which ``--write`` writes. Exit code 1 when a kernel does not compile, asks for more
shared memory than the architecture gives a block, or takes more of anything than is written.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from gpu.ahead_of_time import TARGETS, compile_for, recorded
from gpu.cases import cases

BUDGETS = Path(__file__).with_name("compiled.json")
TOO_LARGE = {("attention mixed 8/1x256: unified_attention_kernel", "gfx942")}
"""What is known not to fit: a tile for heads of 256, made for larger shared memories."""
FIGURES = ("registers", "spill_bytes", "shared_bytes")
Table = Mapping[str, Mapping[str, list[int]]]
"""Case and kernel -> target -> :data:`FIGURES`."""


@contextmanager
def undrawn() -> Iterator[None]:
    """Normal numbers are what the memory holds: a compiler is told of shapes, and drawing them takes longer than it."""

    def empty(*shape: Any, generator: torch.Generator) -> torch.Tensor:
        return torch.empty(*shape)

    with mock.patch.object(torch, "randn", empty):
        yield


def compiled(targets: list[str]) -> Table:
    """Every kernel of every case, compiled for ``targets``; a line for each is printed."""
    table: dict[str, dict[str, list[int]]] = {}
    print(f"{'case and kernel':<62} {'target':<7} {'registers':>9} {'spilled B':>9} {'shared B':>9}", flush=True)
    for case in cases():
        with recorded() as launches, undrawn():
            case.launch(case.arguments(torch.Generator().manual_seed(17)))
        for launch in launches:
            name = f"{case.name}: {launch.kernel.__name__}"
            for target in targets:
                if case.min_capability >= 89 and not TARGETS[target].fp8:
                    print(f"{name:<62} {target:<7} has no fp8 e4m3", flush=True)
                    continue
                took = compile_for(launch, TARGETS[target])
                figures = [took.registers, took.spill_bytes, took.shared_bytes]
                table.setdefault(name, {})[target] = figures
                too_much = took.shared_bytes > TARGETS[target].shared_limit
                print(
                    f"{name:<62} {target:<7} {took.registers:>9} {took.spill_bytes:>9} {took.shared_bytes:>9}"
                    f"{'  TOO MUCH SHARED' * too_much}",
                    flush=True,
                )
    return table


def faults(table: Table, budgets: Table) -> list[str]:
    """Kernels that do not fit, take more than ``budgets`` has for them, or are not in it."""
    found = []
    for name, of_targets in table.items():
        for target, figures in of_targets.items():
            limit = TARGETS[target].shared_limit
            if figures[FIGURES.index("shared_bytes")] > limit and (name, target) not in TOO_LARGE:
                found.append(f"{name} on {target}: more shared memory than {limit} bytes")
            known = budgets.get(name, {}).get(target)
            if known is None:
                found.append(f"{name} on {target}: not in {BUDGETS.name}")
                continue
            for what, now, before in zip(FIGURES, figures, known, strict=True):
                if now > before:
                    found.append(f"{name} on {target}: {what} {now}, {before} in {BUDGETS.name}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--write", action="store_true", help=f"write {BUDGETS.name}: all targets")
    parser.add_argument("--check", action="store_true", help=f"hold all to {BUDGETS.name}")
    arguments = parser.parse_args()
    table = compiled(list(TARGETS) if arguments.write else arguments.target)
    if arguments.write:
        lines = (f"{json.dumps(name)}: {json.dumps(of_targets)}" for name, of_targets in table.items())
        BUDGETS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    budgets = json.loads(BUDGETS.read_text()) if arguments.check or arguments.write else table
    found = faults(table, budgets)
    for fault in found:
        print(fault, file=sys.stderr)
    spill = sum(figures[1] > 0 for of_targets in table.values() for figures in of_targets.values())
    print(f"{sum(map(len, table.values()))} compiled, {spill} spill, {len(found)} faults")
    return 1 if found else 0
