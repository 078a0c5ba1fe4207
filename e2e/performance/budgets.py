"""Measured values against the most they may be."""

from collections.abc import Mapping
from pathlib import Path

import yaml

FILE = Path(__file__).with_name("budgets.yaml")


def load(size: str, file: Path = FILE) -> dict[str, float]:
    """The budgets of one size, such as ``100x10``; none where the file has no such size."""
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {name: float(most) for name, most in document.get(size, {}).items()}


def exceeded(measured: Mapping[str, float], budgets: Mapping[str, float]) -> list[str]:
    """One line for each budget that is not kept; what has one and was not measured keeps none."""
    faults = []
    for name, most in budgets.items():
        value = measured.get(name)
        if value is None:
            faults.append(f"{name}: was not measured: its budget is {most:g}")
        elif not value <= most:
            faults.append(f"{name}: is {value:g}: must be at most {most:g}")
    return faults
