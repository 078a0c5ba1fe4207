"""The calibration against a runner whose step times are known, and the profile it writes."""

import json
import random
from itertools import pairwise

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.cli.command import main
from paternoster_engine.bench.calibration.step_cost import StepCostFit, fit_step_cost
from paternoster_engine.bench.calibration.timing import JITTER, Calibration, Cell, design_cells
from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.core.step_work import StepWork
from paternoster_engine.engine import Engine
from paternoster_engine.runner.protocol import SynchronousRunner

CONFIG = SchedulerConfig(
    max_num_seqs=16, max_batched_tokens=256, max_model_len=1024, block_size=16, num_blocks=256, watermark_blocks=2
)
TRUTH = StepCostFit(0.015, 0.0005, 0.001, 2e-6, 1e-7)


class TimedRunner(SynchronousRunner):
    """Moves its own clock by what the true prices say of each batch it is given."""

    def __init__(self) -> None:
        self.now = 0.0
        self.works: list[StepWork] = []

    def execute(self, batch: Batch) -> StepResult:
        self.works.append(StepWork.from_batch(batch))
        self.now += TRUTH.predict_seconds(self.works[-1])
        return StepResult([7 if item.samples else None for item in batch.scheduled])


@pytest.fixture
def runner() -> TimedRunner:
    return TimedRunner()


@pytest.fixture
def calibration(runner: TimedRunner) -> Calibration:
    return Calibration(Engine(Scheduler(CONFIG), runner), clock=lambda: runner.now)


def test_known_prices_are_found(calibration: Calibration) -> None:
    fit = fit_step_cost(calibration.run(seconds=60))
    for name in StepCostFit.__dataclass_fields__:
        assert getattr(fit, name) == pytest.approx(getattr(TRUTH, name), rel=1e-4), name


def test_every_cell_is_timed_with_the_work_that_its_name_states(calibration: Calibration, runner: TimedRunner) -> None:
    for cell in calibration.cells:
        del runner.works[:]
        samples = calibration.time_cell(cell)
        assert [sample.work for sample in samples] == runner.works, "the model runs in timed steps and in no others"
        for sample in samples:
            work = sample.work
            assert sample.cell == cell.name
            assert work.decode_sequences == cell.decodes
            assert (1 - JITTER) * cell.chunk - 1 <= work.prefill_tokens <= cell.chunk
            if not cell.decodes:
                assert work.kv_tokens == cell.chunk_start + work.prefill_tokens
        growth = [after.work.kv_tokens - before.work.kv_tokens for before, after in pairwise(samples)]
        assert all(step == cell.decodes for step in growth), "each decode reads one token more at each step"


def test_the_engines_own_scheduler_is_left_alone(runner: TimedRunner) -> None:
    engine = Engine(Scheduler(CONFIG), runner)
    Calibration(engine, clock=lambda: runner.now).run(seconds=0, min_rounds=1)
    assert engine.scheduler.counters.requests == 0
    assert not engine.scheduler.has_work


configs = st.builds(
    SchedulerConfig,
    max_num_seqs=st.integers(1, 64),
    max_batched_tokens=st.integers(64, 1024),
    max_model_len=st.integers(64, 8192),
    block_size=st.sampled_from([1, 16, 32]),
    num_blocks=st.integers(64, 2000),
    watermark_blocks=st.integers(0, 8),
)


@given(configs, st.integers(0, 2**32))
def test_the_design_fits_the_scheduler_and_never_preempts(config: SchedulerConfig, seed: int) -> None:
    runner = TimedRunner()
    calibration = Calibration(Engine(Scheduler(config), runner), seed=seed, clock=lambda: runner.now)
    cells = random.Random(seed).sample(calibration.cells, min(3, len(calibration.cells)))
    for cell in cells:
        samples = calibration.time_cell(cell)
        assert all(sample.work.decode_sequences == cell.decodes for sample in samples)


def test_the_design_reaches_the_capacity_and_the_budget() -> None:
    cells = design_cells(CONFIG)
    assert max(cell.decodes for cell in cells) == CONFIG.max_num_seqs
    assert max(cell.chunk for cell in cells) == CONFIG.max_batched_tokens
    assert any(cell.decodes and cell.chunk for cell in cells)
    assert len({cell.name for cell in cells}) == len(cells)
    assert Cell(decodes=15, context=128, chunk=241) in cells, "a full batch and a full step"
    assert not Cell(decodes=17, context=8).fits_pool(CONFIG)


@given(configs)
def test_the_design_fills_the_pool_or_the_context(config: SchedulerConfig) -> None:
    """With any number of sequences that it tries, one more block each would be too many."""
    cells = design_cells(config)
    for decodes in {cell.decodes for cell in cells if not cell.chunk}:
        longest = max(cell.context for cell in cells if cell.decodes == decodes and not cell.chunk)
        assert not Cell(decodes=decodes, context=longest + config.block_size).fits_pool(config)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--seconds", "0"], "seconds is 0.0: must be a number above 0"),
        (["--usd-per-hour", "-1"], "usd-per-hour is -1.0: must be at least 0"),
        (["--output", "/nowhere/at/all.yaml"], "output is /nowhere/at/all.yaml: must be in a folder that exists"),
        (["--", "--max-num-seqs", "0"], "--max-num-seqs is '0': input should be greater than or equal to 1"),
    ],
)
def test_bad_flags_are_one_clear_message(capsys, flags, complaint) -> None:
    assert main(["bench", "calibrate", *flags]) == 2
    assert f"paternoster bench calibrate: {complaint}" in capsys.readouterr().err


def test_the_real_engine_is_calibrated_into_a_profile(tmp_path, capsys) -> None:
    output, samples = tmp_path / "here.yaml", tmp_path / "steps.jsonl"
    flags = ["--output", output, "--samples", samples, "--seconds", "0.1", "--json", "--usd-per-hour", "0.25"]
    engine = ["--max-num-seqs", "2", "--max-batched-tokens", "32", "--max-model-len", "64", "--threads", "1"]
    assert main(["bench", "calibrate", *map(str, flags), "--", *engine, "--kv-cache-memory", "4000000"]) == 0
    printed = json.loads(capsys.readouterr().out)
    profile = yaml.safe_load(output.read_text())
    for name, value in printed["profile"]["step"].items():
        assert profile["step"][name] == pytest.approx(value, rel=1e-3), "text keeps five digits"
    assert profile["name"] == "here"
    assert profile["source"].startswith("measured 20")
    assert (profile["max_num_seqs"], profile["max_model_len"], profile["usd_per_gpu_hour"]) == (2, 64, 0.25)
    assert profile["step"]["fixed_seconds"] > 0
    assert profile["startup"]["load_seconds"] > 0
    assert len(samples.read_text().splitlines()) == printed["steps"] == sum(c["steps"] for c in printed["cells"])


def test_bench_without_a_benchmark_lists_them(capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench"])
    assert end.value.code == 2
    assert "serve, offline, calibrate, tune, compare" in capsys.readouterr().err


@given(st.integers(0, 2**32))
def test_lengths_differ_from_visit_to_visit_and_never_grow(seed: int) -> None:
    cell = Cell(decodes=4, context=100, chunk=50).jitter_lengths(random.Random(seed))
    assert cell.decodes == 4
    assert (1 - JITTER) * 100 <= cell.context <= 100
    assert (1 - JITTER) * 50 <= cell.chunk <= 50
