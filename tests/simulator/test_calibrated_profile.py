"""What a calibration writes is what a simulation reads: the same prices, by the same count of work."""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.bench.calibration.hardware_profile import HardwareProfile
from paternoster_engine.bench.calibration.step_cost import StepCostFit
from paternoster_engine.core.batch import Batch, ScheduledRequest
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.step_work import StepWork
from paternoster_simulator.cost import StepCost, to_seconds
from paternoster_simulator.profile import parse_profile

CONFIG = SchedulerConfig(max_num_seqs=8, max_batched_tokens=64, max_model_len=128, block_size=16, num_blocks=40)
prices = st.floats(0, 1) | st.floats(1e-12, 1e-5)
fits = st.builds(StepCostFit, st.floats(1e-6, 10), prices, prices, prices, prices)


def measured(fit: StepCostFit, name: str = "here", source: str = "measured") -> HardwareProfile:
    return HardwareProfile(name, source, CONFIG, 0, 0.08, 1, fit, 3.25, 0.5, 5000.0, 500.0)


@given(fits, st.text(max_size=30))
def test_a_measured_profile_is_read_as_it_was_written(fit: StepCostFit, source: str) -> None:
    text = measured(fit, source=source).to_yaml(["a line", "", "cell: 1"])
    profile = parse_profile(text, where="test")
    assert profile.source == source
    assert profile.step.model_dump() == pytest.approx(asdict(fit), rel=1e-4, abs=1e-300)
    assert (profile.kv_blocks, profile.kv_block_size, profile.max_num_seqs) == (40, 16, 8)
    assert (profile.startup.load_seconds, profile.engine) == (3.25, "Paternoster")
    assert profile.objective.itl_ms == 500


@given(
    fits,
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50), st.booleans()), min_size=1, max_size=8),
)
def test_both_sides_count_the_same_work(fit: StepCostFit, items: list[tuple[int, int, bool]]) -> None:
    batch = Batch(
        step=1,
        scheduled=tuple(
            ScheduledRequest(Request(RequestSpec(str(i), [1], SamplingParams(max_tokens=1))), start, count, samples)
            for i, (start, count, samples) in enumerate(items)
        ),
    )
    simulated = to_seconds(StepCost.from_seconds(**asdict(fit)).step(batch))
    # The simulator rounds each price to a picosecond.
    work = StepWork.from_batch(batch)
    rounding = 1e-12 * (1 + work.prefill_tokens + work.decode_sequences + work.kv_tokens + work.prefill_pairs)
    assert simulated == pytest.approx(fit.predict_seconds(work), abs=rounding, rel=1e-9)
