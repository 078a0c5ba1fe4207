"""How long a step takes, as a sum over the work in it: the model that a calibration fits and a simulation uses."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paternoster_engine.core.step_work import StepWork


@dataclass(frozen=True, slots=True)
class StepSample:
    """One step that was timed."""

    cell: str
    """Which part of the design it belongs to."""
    work: StepWork
    seconds: float

    def to_document(self) -> dict[str, Any]:
        return {"cell": self.cell, "seconds": self.seconds, **asdict(self.work)}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "StepSample":
        work = StepWork(**{field.name: int(document[field.name]) for field in fields(StepWork)})
        return cls(str(document["cell"]), work, float(document["seconds"]))


@dataclass(frozen=True, slots=True)
class StepCostFit:
    """Seconds of each kind of work; the names are those of the ``step`` section of a hardware profile."""

    fixed_seconds: float
    per_prefill_token_seconds: float
    per_decode_sequence_seconds: float
    per_kv_token_seconds: float
    per_prefill_pair_seconds: float

    def predict_seconds(self, work: StepWork) -> float:
        return float(_build_row(work) @ np.array([getattr(self, field.name) for field in fields(self)]))


def fit_step_cost(samples: Sequence[StepSample]) -> StepCostFit:
    """Least squares of the relative error, no coefficient below 0; raises ``ValueError`` for too few samples.

    Each sample is weighted by the mean of its cell, not by itself: what is fitted stays the mean of a noisy step.
    Exact: the optimum is the plain least-squares fit on the columns where it is above 0, and there are few columns.
    """
    if len({sample.work for sample in samples}) < len(fields(StepCostFit)):
        raise ValueError(f"calibration: {len(samples)} steps are too few: must be 5 that differ in their work")
    if any(sample.seconds <= 0 for sample in samples):
        raise ValueError("calibration: a step took no time: the clock is too coarse")
    weights = 1 / np.array([_cell_means(samples)[sample.cell] for sample in samples])
    matrix = np.array([_build_row(sample.work) for sample in samples]) * weights[:, None]
    target = np.array([sample.seconds for sample in samples]) * weights
    # Columns of one size, or the smallest prices would drown in rounding.
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    best, least = np.zeros(matrix.shape[1]), np.inf
    for columns in _list_supports(matrix.shape[1]):
        solution = np.linalg.lstsq(matrix[:, columns] / scale[columns], target, rcond=None)[0]
        residual = float(np.sum((matrix[:, columns] / scale[columns] @ solution - target) ** 2))
        if solution[0] > 0 and np.all(solution >= 0) and residual < least:
            least = residual
            best = np.zeros(matrix.shape[1])
            best[columns] = solution / scale[columns]
    return StepCostFit(*(float(value) for value in best))


@dataclass(frozen=True, slots=True)
class CellResidual:
    """One cell of the design, measured and as the fit has it, in seconds."""

    cell: str
    steps: int
    measured: float
    """Mean."""
    deviation: float
    """Standard deviation between steps."""
    fitted: float
    """Mean."""

    @property
    def error(self) -> float:
        """Share by which the fit is too slow (above 0) or too fast."""
        return self.fitted / self.measured - 1


def compute_residuals(samples: Sequence[StepSample], fit: StepCostFit) -> list[CellResidual]:
    """Residuals by cell, in the order in which cells first appear."""
    cells: dict[str, list[StepSample]] = {}
    for sample in samples:
        cells.setdefault(sample.cell, []).append(sample)
    return [
        CellResidual(
            cell,
            len(steps),
            float(np.mean([step.seconds for step in steps])),
            float(np.std([step.seconds for step in steps])),
            float(np.mean([fit.predict_seconds(step.work) for step in steps])),
        )
        for cell, steps in cells.items()
    ]


def explained_share(samples: Sequence[StepSample], fit: StepCostFit) -> float:
    """Share of the variance of step times that the fit explains (R squared), at most 1."""
    measured = np.array([sample.seconds for sample in samples])
    fitted = np.array([fit.predict_seconds(sample.work) for sample in samples])
    total = float(np.sum((measured - measured.mean()) ** 2))
    return 1 - float(np.sum((measured - fitted) ** 2)) / total if total else 1.0


def _build_row(work: StepWork) -> NDArray[np.float64]:
    return np.array(
        [1, work.prefill_tokens, work.decode_sequences, work.kv_tokens, work.prefill_pairs], dtype=np.float64
    )


def _list_supports(columns: int) -> Iterator[list[int]]:
    """All sets of columns with the first one in it."""
    for count in range(columns):
        for chosen in combinations(range(1, columns), count):
            yield [0, *chosen]


def _cell_means(samples: Sequence[StepSample]) -> dict[str, float]:
    cells: dict[str, list[float]] = {}
    for sample in samples:
        cells.setdefault(sample.cell, []).append(sample.seconds)
    return {cell: sum(seconds) / len(seconds) for cell, seconds in cells.items()}
