"""Compile every kernel for GPUs that need not be there: registers, spills and shared memory of each.

``python benchmarks gpu.compile`` on any Linux machine with torch and Triton; ``--check`` holds each figure to the one
in ``benchmarks/gpu/compiled.json``, which ``--write`` writes. Exit code 1 when a kernel does not compile, asks for more
shared memory than the architecture gives a block, or takes more of anything than is written. With ``--sample`` each is
compiled for one of the targets, which takes turns.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from gpu.kernels.ahead_of_time import TARGETS, compile_for, recorded
from gpu.kernels.cases import cases

BUDGETS = Path(__file__).with_name("compiled.json")
TOO_LARGE = {("attention mixed 8/1x256: unified_attention_kernel", "gfx942")}
"""What is known not to fit: a tile for heads of 256, made for larger shared memories."""
FIGURES = ("registers", "spill_bytes", "shared_bytes")
Table = Mapping[str, Mapping[str, list[int]]]
"""Case and kernel -> target -> :data:`FIGURES`."""


@contextmanager
def undrawn() -> Iterator[None]:
    """Normal numbers are what the memory holds: a compiler needs only shapes, and drawing them takes longer than it."""

    def empty(*shape: Any, generator: torch.Generator) -> torch.Tensor:
        return torch.empty(*shape)

    with mock.patch.object(torch, "randn", empty):
        yield


class Turns:
    """Which of ``targets`` a kernel is compiled for: the next one in each case, and another first one for each kernel.

    So all targets have their share of every kernel's cases, and of the kernels with one.
    """

    def __init__(self, targets: Sequence[str]) -> None:
        self._targets = targets
        self._next: Counter[str] = Counter()

    def of(self, kernel: str, allowed: Sequence[str]) -> list[str]:
        """One of those that are ``allowed``, where there are any."""
        self._next.setdefault(kernel, len(self._next))
        turn = self._next[kernel] % len(self._targets)
        self._next[kernel] += 1
        return [target for target in (*self._targets[turn:], *self._targets[:turn]) if target in allowed][:1]


def compiled(targets: list[str], sample: bool = False) -> Table:
    """Every kernel of every case, compiled for ``targets`` or a ``sample`` of them; a line for each is printed."""
    table: dict[str, dict[str, list[int]]] = {}
    turns = Turns(targets)
    print(f"{'case and kernel':<62} {'target':<7} {'registers':>9} {'spilled B':>9} {'shared B':>9}", flush=True)
    for case in cases():
        with recorded() as launches, undrawn():
            case.launch(case.arguments(torch.Generator().manual_seed(17)))
        for launch in launches:
            name = f"{case.name}: {launch.kernel.__name__}"
            able = [target for target in targets if case.min_capability < 89 or TARGETS[target].fp8]
            for target in turns.of(launch.kernel.__name__, able) if sample else able:
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
            budget = budgets.get(name, {}).get(target)
            if budget is None:
                found.append(f"{name} on {target}: not in {BUDGETS.name}")
                continue
            for what, now, before in zip(FIGURES, figures, budget, strict=True):
                if now > before:
                    found.append(f"{name} on {target}: {what} {now}, {before} in {BUDGETS.name}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--sample", action="store_true", help="each kernel of each case for one target, in turn")
    parser.add_argument("--write", action="store_true", help=f"write {BUDGETS.name}: all targets")
    parser.add_argument("--check", action="store_true", help=f"hold all to {BUDGETS.name}")
    arguments = parser.parse_args()
    if arguments.write and (arguments.sample or arguments.target != list(TARGETS)):
        parser.error("--write: takes all targets, without --sample")
    table = compiled(arguments.target, arguments.sample)
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
