"""The engine's parts of the check: oracle, prefill and decode, and the comparison, each within its time."""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from gpu.budget import Budget, Ceilings
from gpu.engines.end_to_end import Load, measure
from gpu.engines.engine_oracle import verdicts
from gpu.engines.shapes import LLAMA3, QWEN3, QWEN3_SMALL, SMOLLM2, TINY
from gpu.engines.theirs import Work, compare
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.decoder import Decoder

BATCHES = (1, 8, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run, and for how many seconds at most each."""

    loads: Sequence[Load]
    compared: Sequence[tuple[ModelConfig, int, int, int]]
    """Model, requests, longest prompt and longest answer."""
    oracle_tokens: int
    oracle_seconds: float
    load_seconds: float
    """All loads together; each may take its share of what those before it left."""
    compare_seconds: float


FULL = Plan(
    # The two with a bar first.
    loads=[Load(config, BATCHES, prompt=512, steps=20) for config in (LLAMA3, SMOLLM2, QWEN3_SMALL, QWEN3)],
    compared=[(SMOLLM2, 64, 512, 256), (LLAMA3, 64, 512, 256)],
    oracle_tokens=20,
    oracle_seconds=100,
    load_seconds=180,
    compare_seconds=100,
)
QUICK = Plan(
    loads=[Load(TINY, (1, 3), prompt=12, steps=2)],
    compared=[(TINY, 3, 16, 8)],
    oracle_tokens=4,
    oracle_seconds=600,
    load_seconds=600,
    compare_seconds=600,
)


def smollm2_file(source: str) -> Callable[[torch.device], Decoder] | None:
    """What loads the model at ``source`` in float32; None, and a note, when it or a library for it is missing."""
    try:
        from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
        from paternoster_engine.model.source import resolve_source

        checkpoint = open_checkpoint(resolve_source(source))
    except Exception as raised:
        print(f"oracle on {source}: skipped, {type(raised).__name__}: {raised}", flush=True)
        return None
    return lambda device: Decoder(checkpoint.config, checkpoint.get_tensor, torch.float32, device)


def check_engine(plan: Plan, device: torch.device, source: str | None, budget: Budget) -> list[dict[str, Any]]:
    """The oracle's verdicts; ``source``: where the file of SmolLM2 is, if it is to be looked for."""
    rows: list[dict[str, Any]] = []
    part = budget.part(plan.oracle_seconds)
    load = None if source is None else smollm2_file(source)
    for verdict in verdicts(device, plan.oracle_tokens, load):
        outcome = "ok" if verdict.passed else "FAILED"
        print(
            f"engine, {verdict.name:<32} {verdict.same} of {verdict.requests} requests the same, "
            f"{verdict.near_ties} part at a near tie: {outcome}",
            flush=True,
        )
        rows.append(asdict(verdict) | {"passed": verdict.passed})
        if not part.allows("the rest of the oracle"):
            break
    return rows


def measure_engine(plan: Plan, device: torch.device, ceilings: Ceilings | None, budget: Budget) -> dict[str, Any]:
    """Rows of the two tables, one line each as they come, and what failed; ``ceilings`` are None without a GPU."""
    part, rows = budget.part(plan.load_seconds), []
    failures: list[str] = []
    for number, load in enumerate(plan.loads):
        share = part.part(part.left / (len(plan.loads) - number))
        try:
            for row in measure(load, device, ceilings, share):
                print(f"measured {row.model} {row.phase} at batch {row.batch}", flush=True)
                rows.append(asdict(row))
        except torch.OutOfMemoryError as raised:
            print(f"{load.config.name}: not measured, {raised}", flush=True)
        except Exception as raised:
            traceback.print_exc()
            failures.append(f"{load.config.name}: {type(raised).__name__}: {raised}")
        if device.type == "cuda":
            torch.cuda.empty_cache()
    part, compared = budget.part(plan.compare_seconds), []
    for config, requests, prompt, answer in plan.compared:
        work = Work.draw(requests, prompt, answer, config.vocab_size)
        for found in compare(config, work, device, part):
            print(f"measured {found.model} by {found.system}" + (f": {found.note}" if found.note else ""), flush=True)
            compared.append(asdict(found))
    return {"end_to_end": rows, "compared": compared, "failures": failures}


def tables(measured: dict[str, Any]) -> str:
    """Prefill and decode, and the comparison."""
    head = f"{'model':<14} {'phase':<8} {'batch':>5} {'context':>8} {'ms':>10} {'tokens/s':>10} {'of ceiling':>10} busy"
    lines = ["", head]
    for row in measured["end_to_end"]:
        share, busy = (_percent(row[name]) for name in ("of_ceiling", "busy"))
        lines.append(
            f"{row['model']:<14} {row['phase']:<8} {row['batch']:>5} {row['context']:>8.0f} "
            f"{row['milliseconds']:>10.3f} {row['tokens_per_second']:>10.0f} {share:>10} {busy}"
        )
    lines += ["", f"{'model':<14} {'the same requests by':<34} {'tokens/s':>10} {'ours over it':>12}"]
    ours = {row["model"]: row["tokens_per_second"] for row in measured["compared"] if row["system"] == "paternoster"}
    for row in measured["compared"]:
        own, speed = ours.get(row["model"]), row["tokens_per_second"]
        rate = row["note"] if speed is None else f"{speed:>10.0f} {own / speed if own else float('nan'):>12.2f}"
        lines.append(f"{row['model']:<14} {row['system']:<34} {rate}")
    return "\n".join(lines)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
