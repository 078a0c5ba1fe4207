"""What a simulated replica reports as vLLM is what the operator would read of one in the same state."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulator.small_profile import SMALL

from paternoster_contract.stats import EngineState, EngineStats
from paternoster_engine.core.errors import AdmissionError
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.engines.adapter import RuntimeType
from paternoster_operator.engines.vllm import VllmAdapter
from paternoster_operator.engines.vllm_arguments import VllmKind
from paternoster_operator.engines.vllm_metrics import NAMES, OPTIONAL
from paternoster_simulator.cost import to_seconds, to_ticks
from paternoster_simulator.policies.policy import Action
from paternoster_simulator.profile import EngineName
from paternoster_simulator.replica.replica import SimulatedReplica
from paternoster_simulator.replica.reports import report_stats
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.trace import TraceRow

RECORDED = Path(__file__).parents[2] / "operator/engines/recorded"
METRICS = (RECORDED / "vllm-0.32-metrics.txt").read_text()
REPORT = json.loads((RECORDED / "vllm-0.32-limits.json").read_text())
IDENTITY = {"model", "engine_version"}
"""Fields of an engine that is there."""


def answer_as_vllm(stats: EngineStats) -> list[bytes]:
    """The two recorded answers of a vLLM, with the numbers of ``stats``."""
    numbers = stats.model_dump(mode="json")
    report = {name: numbers.get(name, value) for name, value in REPORT.items()}
    report["max_queue_milliseconds"] = stats.max_queue_milliseconds
    report["step_sums"] = numbers["step_sums"]
    report["scheduled_tokens_total"] = stats.computed_tokens_total
    text = METRICS
    for field, sample in {**NAMES, **OPTIONAL}.items():
        pattern = rf"^({re.escape(sample)}(?:{{[^}}]*}})?) \S+$"
        # The refusals have two reasons; all are of one.
        values = iter([numbers[field]])
        text, count = re.subn(pattern, lambda found: f"{found[1]} {next(values, 0)!r}", text, flags=re.MULTILINE)  # noqa: B023
        assert count >= 1, sample
    return [json.dumps(report).encode(), text.encode()]


def run_replica(lengths: list[tuple[int, int]], cap: int, seconds: float) -> SimulatedReplica:
    config = FleetSettings(max_queued_requests=6).scheduler_config(SMALL)
    replica = SimulatedReplica("pod", config, SMALL.cost)
    replica.set_cap(cap, 0)
    for number, (prompt, output) in enumerate(lengths):
        params = SamplingParams(max_tokens=output, ignore_eos=True)
        try:
            replica.add(Request(RequestSpec(str(number), [1] * prompt, params, arrival=0)), 0)
        except AdmissionError:
            continue
    while replica.end is not None and replica.end <= to_ticks(seconds):
        replica.advance(replica.end)
    return replica


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 150)), max_size=20),
    st.integers(1, 16),
    st.floats(0, 20),
    st.booleans(),
)
def test_the_adapter_of_vllm_reads_the_same(
    lengths: list[tuple[int, int]], cap: int, seconds: float, draining: bool
) -> None:
    now = to_ticks(seconds)
    stats = run_replica(lengths, cap, seconds).build_stats(now, draining=draining)
    reported = report_stats("VLLM", stats)
    read = VllmAdapter().parse_stats(answer_as_vllm(reported), to_seconds(now))
    assert reported.model_dump(exclude=IDENTITY) == read.model_dump(exclude=IDENTITY)
    # What both report is what the replica counts, but for what vLLM counts at the end of a request, or not at all.
    same = report_stats("Paternoster", stats)
    assert same == stats
    differ = {name for name in EngineStats.model_fields if getattr(stats, name) != getattr(reported, name)}
    assert differ <= {
        "batch", "state", "idle_seconds", "kv_projected_peak", "queue_count_total", "requests_rejected_total",
    }  # fmt: skip


def test_it_lacks_what_the_kind_of_vllm_lacks() -> None:
    stats = run_replica([(100, 20)] * 8, 4, 0.3).build_stats(to_ticks(0.3), draining=True)
    reported, kind = report_stats("VLLM", stats), VllmKind.capabilities
    assert (stats.step_sums != (), stats.max_queue_milliseconds is not None) == (True, True)
    assert (reported.step_sums != (), reported.max_queue_milliseconds is not None) == (
        kind.step_costs,
        kind.queue_limit,
    )
    assert (stats.state, reported.state) == (EngineState.DRAINING, EngineState.READY)
    assert (stats.queue_count_total, reported.queue_count_total) == (4, 0)


@pytest.mark.parametrize("name", get_args(EngineName))
def test_a_queue_is_bounded_by_time(name: EngineName) -> None:
    class Bound:
        period_seconds = 5.0

        def decide(self, observation: Observation) -> Action:
            return Action(1, max_queue_milliseconds=500)

    rows = [TraceRow(1 + number / 10, 200, 100) for number in range(200)]
    profile = SMALL.model_copy(update={"engine": name})
    fleet = FleetSettings(max_held_requests=1, hold_timeout_seconds=1)
    outcome = simulate_fleet(profile, rows, Bound(), start_replicas=1, duration=60, settings=fleet)
    assert outcome.lost > 0


@pytest.mark.parametrize("name", get_args(EngineName))
def test_an_engine_of_a_profile_is_one_of_the_operator(name: str) -> None:
    assert RuntimeType(name) == name
