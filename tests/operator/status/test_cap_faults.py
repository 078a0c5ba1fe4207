"""Which engines do not hold the live cap that they were set to, or that they report."""

from typing import Any

import pytest

from paternoster_contract.stats import EngineStats
from paternoster_operator.pods.cap_faults import MOST_CALLS, CapFaults


def report(cap: int = 4, running: int = 0) -> EngineStats:
    return EngineStats.model_construct(live_cap=cap, running=running)


def observe(faults: CapFaults, *steps: tuple[int, int]) -> CapFaults:
    """After reports of the pod ``a``, each a live cap and what runs."""
    before: dict[str, EngineStats] = {}
    for cap, running in steps:
        now = {"a": report(cap, running)}
        faults, before = faults.observe({}, before, now, ["a"]), now
    return faults


def test_a_silent_engine_has_its_last_fault_until_it_reports_or_is_gone() -> None:
    faults = CapFaults(answers={"a": "x", "b": "y"}).observe({"c": "z"}, {}, {"a": report()}, ["a", "b", "c"])
    assert faults.by_pod == {"b": "y", "c": "z"}
    assert CapFaults(answers={"a": "x"}).observe({}, {}, {}, []).by_pod == {}
    assert CapFaults(answers={"a": "x"}).observe({"a": "y"}, {}, {}, ["a"]).by_pod == {"a": "y"}


@pytest.mark.parametrize(
    ("caps", "faulty"),
    [
        ([4] * (MOST_CALLS - 1), False),
        ([4] * MOST_CALLS, True),
        ([4, 5] * MOST_CALLS, False),
        ([4, 4, None, 4, 4], False),
        ([*[4] * MOST_CALLS, None], False),
    ],
    ids=["not yet", "no call moves it", "another cap each time", "it moved meanwhile", "it moved at last"],
)
def test_a_cap_that_calls_do_not_move_is_a_fault(caps: list[int | None], faulty: bool) -> None:
    faults = CapFaults()
    for cap in caps:
        faults = faults.count_calls({} if cap is None else {"a": cap})
    assert faults.by_pod == ({"a": f"the live cap is not 4 after {MOST_CALLS} calls that set it"} if faulty else {})


@pytest.mark.parametrize(
    ("steps", "faulty"),
    [
        ([(4, 3), (4, 4), (4, 4)], False),
        ([(4, 3), (4, 3), (4, 5)], True),
        ([(16, 3), (4, 3), (4, 12)], False),
        ([(16, 3), (4, 12), (4, 9), (4, 9)], False),
        ([(16, 3), (4, 12), (4, 9), (4, 10)], True),
        ([(4, 5)], False),
        ([(4, 3), (4, 3), (4, 5), (4, 2)], True),
    ],
    ids=[
        "within",
        "beyond",
        "a count older than the cap",
        "what ran at the cut",
        "more after it",
        "one report",
        "once",
    ],
)
def test_more_that_run_than_the_reported_cap_allows_is_a_fault(steps: list[tuple[int, int]], faulty: bool) -> None:
    assert bool(observe(CapFaults(), *steps).by_pod) is faulty


def test_faults_end_with_the_pod() -> None:
    faults = observe(CapFaults().count_calls({"a": 4}), (4, 3), (4, 3), (4, 5))
    assert faults.by_pod == {"a": "5 requests run where it reports a live cap of 4"}
    gone: dict[str, Any] = {"faults": {}, "before": {}, "reports": {}, "pods": ["b"]}
    assert faults.observe(**gone) == CapFaults()
