"""One run of ``paternoster bench calibrate``: from its flags to the profile."""

import argparse
import json
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TimeElapsedColumn

from paternoster_contract.cli.console import QuotingConsole
from paternoster_contract.cli.terminal import print_json, print_lines
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.bench.calibration.hardware_profile import HardwareProfile
from paternoster_engine.bench.calibration.step_cost import (
    StepCostFit,
    StepSample,
    compute_residuals,
    explained_share,
    fit_step_cost,
)
from paternoster_engine.bench.calibration.timing import Calibration, Cell
from paternoster_engine.bench.machine import cpu_name

WARM_UP = "warm-up"


@dataclass(frozen=True)
class CalibrationSession:
    """Settings of a run, checked; :meth:`run` carries it out."""

    options: argparse.Namespace
    engine_args: EngineArgs

    @classmethod
    def from_namespace(cls, options: argparse.Namespace, engine_args: EngineArgs) -> "CalibrationSession":
        """Check the flags before the model is loaded; raises :class:`ValueError`."""
        for name in ("seconds", "ttft_ms", "itl_ms"):
            if not 0 < getattr(options, name) < float("inf"):
                raise ValueError(f"{name.replace('_', '-')} is {getattr(options, name)}: must be a number above 0")
        if not 0 <= options.usd_per_hour < float("inf"):
            raise ValueError(f"usd-per-hour is {options.usd_per_hour}: must be at least 0")
        for name in ("output", "samples"):
            path = getattr(options, name)
            if path and not Path(path).absolute().parent.is_dir():
                raise ValueError(f"{name} is {path}: must be in a folder that exists")
        return cls(options, engine_args)

    def run(self) -> StepCostFit:
        """Load, measure, fit, write the profile, print."""
        # torch takes seconds to import: a wrong flag should not.
        import torch

        from paternoster_engine.build import build_engine

        options, began = self.options, time.perf_counter()
        engine, _, model = build_engine(self.engine_args)
        load_seconds = time.perf_counter() - began
        calibration = Calibration(engine, seed=options.seed)
        began = time.perf_counter()
        calibration.time_cell(calibration.cells[0])
        warm_seconds = time.perf_counter() - began
        samples = self._measure_cells(calibration)
        fit = fit_step_cost(samples)
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else cpu_name()
        profile = HardwareProfile(
            name=options.name or Path(options.output).stem,
            source=f"measured {datetime.now():%Y-%m-%d}: {model.name} on {device}, "
            f"{torch.get_num_threads()} compute thread(s), {len(samples)} steps",
            config=calibration.config,
            gpus=int(torch.cuda.is_available()),
            usd_per_gpu_hour=options.usd_per_hour,
            watermark_percent=self.engine_args.watermark_percent,
            step=fit,
            load_seconds=load_seconds,
            warm_seconds=warm_seconds,
            ttft_ms=options.ttft_ms,
            itl_ms=options.itl_ms,
        )
        comments = ["Written by `paternoster bench calibrate`.", "", *report_lines(samples, fit)]
        Path(options.output).write_text(profile.to_yaml(comments), encoding="utf-8")
        if options.samples:
            lines = (json.dumps(sample.to_document()) + "\n" for sample in samples)
            Path(options.samples).write_text("".join(lines), encoding="utf-8")
        if options.json:
            print_json(build_document(profile, samples), indent=2)
        else:
            print_lines([*report_lines(samples, fit), f"profile: {options.output}"])
        return fit

    def _measure_cells(self, calibration: Calibration) -> list[StepSample]:
        columns = ("{task.description}", BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=QuotingConsole(stderr=True), disable=self.options.json) as progress:
            seconds = self.options.seconds
            task = progress.add_task(WARM_UP, total=seconds)
            begin: float | None = None
            visits = 0

            def on_visit(cell: Cell) -> None:
                nonlocal begin, visits
                visits += 1
                if visits == len(calibration.cells):
                    begin = time.perf_counter()
                if begin is not None:
                    elapsed = min(time.perf_counter() - begin, seconds)
                    progress.update(task, completed=elapsed, description=f"{cell.name:<36}")

            return calibration.run(seconds=seconds, on_visit=on_visit)


def report_lines(samples: list[StepSample], fit: StepCostFit, unit: str = "steps") -> list[str]:
    """Fit and residuals as text; milliseconds of a step for each cell. ``unit``: what a sample is the mean of."""
    rows = sorted(compute_residuals(samples, fit), key=lambda row: row.measured)
    errors = [abs(row.error) for row in rows]
    lines = [f"{name:<30} {value * 1e6:12.4f} us" for name, value in asdict(fit).items()]
    lines += [
        f"{len(samples)} {unit} in {len(rows)} cells; R2 over {unit} {explained_share(samples, fit):.3f}; "
        f"error of a cell's mean: {sum(errors) / len(errors):.1%} on average, {max(errors):.1%} at most",
        f"{'cell':<36} {unit:>5} {'measured ms':>12} {'deviation':>10} {'fitted ms':>10} {'error':>7}",
    ]
    lines += [
        f"{row.cell:<36} {row.steps:>{max(len(unit), 5)}} {row.measured * 1e3:>12.2f} {row.deviation * 1e3:>10.2f} "
        f"{row.fitted * 1e3:>10.2f} {row.error:>+7.1%}"
        for row in rows
    ]
    return lines


def build_document(profile: HardwareProfile, samples: list[StepSample]) -> dict[str, Any]:
    """The result as plain values: the profile, and for each cell what was measured and fitted, in seconds."""
    return {
        "profile": profile.to_document(),
        "steps": len(samples),
        "r_squared": explained_share(samples, profile.step),
        "cells": [{**asdict(row), "error": row.error} for row in compute_residuals(samples, profile.step)],
    }
