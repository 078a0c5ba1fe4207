"""Reports that are hostile and plausible: the law decides, whatever they are, and its model stays a number."""

import math
import random
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.operator.autoscaling.law_inputs import policy
from tests.security.test_engine_lies import SOUND

from paternoster_contract.stats import STEP_SUMS, EngineStats
from paternoster_operator.autoscaling.autoscaler import Autoscaler, seconds_until_sleep
from paternoster_operator.autoscaling.decision import LIVE_CAP, REPLICAS
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.tuning import Tuning
from paternoster_operator.autoscaling.windows import SignalWindows
from paternoster_operator.plausible import find_implausible

GROWTHS = (0, 1, 5, 60, 1000, 10**6, 10**9)
SUMS = (0.0, 5e-324, 1e-300, 1e-9, 0.5, 1.0, 2.0, 60.0, 1e4, 1e12, 1e25, 1e40)
TOTALS = [name for name in SOUND if name.endswith("_total")]
PODS = ("a", "b")
LOOKS = 12


def draw_report(draw: random.Random, last: EngineStats | None, capacity: int) -> EngineStats | None:
    """A report that is believed after ``last``, as far from what an engine does as that allows; None for none."""
    choose = draw.choice
    largest, blocks = choose([0, 1, 8192, 2**53]), choose([1, 100, 2**53])
    values: dict[str, Any] = {
        **SOUND, "instance": choose("aaab"), "capacity": capacity, "live_cap": choose([1, capacity]),
        "running": choose([0, 1, capacity]), "waiting": choose([0, 1, 5000]), "max_batched_tokens": largest,
        "token_budget": choose([0, largest]), "max_model_len": choose([0, 2**53]), "kv_blocks": blocks,
        "kv_block_size": choose([1, 2**53]), "kv_blocks_used": choose([0, blocks]),
        "kv_projected_peak": choose([0, 1e9]),
        "idle_seconds": choose([None, 0, 1e12]), "max_queue_milliseconds": choose([None, 0, 1000]),
    }  # fmt: skip
    same = last is not None and last.instance == values["instance"]
    before = {name: getattr(last, name) if same else 0 for name in TOTALS}
    start = (last.step_sums if same and last is not None else ()) or (0.0,) * STEP_SUMS
    for name in TOTALS:
        seconds = "seconds" in name
        first = [0, 1e12 if seconds else 2**53]
        # A counter that falls is believed where it began anew.
        grown = choose([before[name]] * 5 + [0]) + choose(SUMS[:9] if seconds else GROWTHS)
        values[name] = choose(first) if last is None else min(grown, first[-1])
    values["step_sums"] = [min(each + choose(SUMS), 1e40) for each in start]
    report = EngineStats.model_validate(values)
    while (found := find_implausible(report, last, 5.0, capacity=capacity, queue=1024)) is not None:
        place = re.match(r"step_sums\[(\d+)\]", found.text)
        if place is None and found.field not in before:
            return None
        if place is None:
            report = report.model_copy(update={found.field: choose([before[found.field], 0])})
            continue
        sums, at, most = list(report.step_sums), int(place[1]), re.search(r"must be at most (\S+)", found.text)
        sums[at] = start[at] if most is None or draw.random() < 0.3 else start[at] + 0.99 * float(most[1])
        report = report.model_copy(update={"step_sums": tuple(sums)})
    return report


@given(seed=st.integers(0, 10**6))
@example(seed=26)
def test_the_law_decides_whatever_engines_report(seed: int) -> None:
    draw, now = random.Random(seed), 1000.0
    capacity = draw.choice([1, 48, 4096])
    autoscaler, last = Autoscaler(policy(engine={"maxNumSeqs": capacity})), dict[str, EngineStats]()
    for _ in range(LOOKS):
        now += draw.choice([5.0, 5.0, 0.0, 1e-9, 300.0])
        reports = {pod: found for pod in PODS if (found := draw_report(draw, last.get(pod), capacity)) is not None}
        last |= reports
        observation = Observation(
            now=now, replicas=2, serving=PODS, pending=(), draining=(), engines=reports,
            held=draw.choice([0, 3, 2**53]), idle_seconds=draw.choice([None, 0.0, 1e12]),
            startup_seconds=draw.choice([None, 1e9]), gateway_requests={"g": draw.choice([0, 1, 2**53])},
        )  # fmt: skip
        autoscaler.observe(observation)
        decision = autoscaler.decide(now)
        assert autoscaler.policy.replicas is not None
        seconds_until_sleep(autoscaler.policy.replicas, autoscaler.signals, autoscaler.states, now)
        targets = decision.targets
        assert 1 <= targets[LIVE_CAP] <= capacity
        assert 1 <= targets[REPLICAS] <= 10
        assert all(math.isfinite(value) for value in autoscaler.models.replica.steps.cost or ())


@pytest.mark.parametrize("pattern", [(1, 0), (1, 0.999999), (0.5, 1)])
@pytest.mark.parametrize("field", ["requests_total", "generation_tokens_total", "requests_preempted_total"])
def test_a_counter_that_falls_again_and_again_adds_no_more_than_one_that_only_grows(
    field: str, pattern: tuple[float, float]
) -> None:
    sound, leap = (EngineStats.model_validate({**SOUND, field: value}) for value in (0, 10**12))
    found = re.search(r"must be at most (\d+)$", str(find_implausible(leap, sound, 5.0, capacity=64, queue=1024)))
    assert found is not None
    most = int(found[1])
    grown = []
    for values in (
        [most * number for number in range(1, LOOKS + 1)],
        [int(most * part) for part in pattern] * (LOOKS // 2),
    ):
        windows, last = SignalWindows(Tuning(window_seconds=5.0 * LOOKS)), sound
        for number, value in enumerate([0, *values]):
            report = EngineStats.model_validate({**SOUND, field: value})
            assert find_implausible(report, last, 5.0, capacity=64, queue=1024) is None
            windows.observe(Observation(5.0 * number, 1, ("a",), (), (), {"a": report}))
            last = report
        signals = windows.summarize_signals()
        grown.append((signals.arrived, signals.generated, signals.preempted))
    assert grown[1] <= grown[0]


def test_a_part_of_a_count_is_refused() -> None:
    """Else a fit divides by what is next to nothing."""
    before = EngineStats.model_validate({**SOUND, "step_sums": [100.0] * STEP_SUMS})
    after = before.model_copy(update={"step_sums": (101.0, 100.0 + 1e-9, *before.step_sums[2:])})
    found = find_implausible(after, before, 5.0, capacity=64, queue=1024)
    assert "step_sums[1] grew by 1e-09: must be whole" in str(found)
