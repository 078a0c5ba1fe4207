"""Traffic that is tuned on is not judged by, and a scenario's identity is what it does."""

from dataclasses import replace
from pathlib import Path

import pytest

from control.scenarios import BESIDE, QUICK, SCENARIOS, SEEDS, Traffic
from control.workloads import thickened
from paternoster_traces.trace import TraceRow

TRACED = {name for name, scenario in SCENARIOS.items() if scenario.traffic.trace}


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Small files with the names and the form of the real ones: a request each ten seconds for an hour."""
    lines = [f"{i * 10},{100 + i},{20 + i}" for i in range(360)]
    for name in TRACED:
        text = "\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]) + "\n"
        (tmp_path / str(SCENARIOS[name].traffic.trace)).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_parts_share_nothing(name: str, traces: Path) -> None:
    scenario = SCENARIOS[name]
    tune, test = (list(scenario.requests(part, traces)) for part in ("tune", "test"))
    for rows in (tune, test):
        times = [row.arrival_s for row in rows]
        assert times == sorted(times)
        assert times[0] >= 0
        assert times[-1] < scenario.duration
    assert tune != test
    if name in TRACED and scenario.traffic.copies == 1:
        assert not {row.prompt_tokens for row in tune} & {row.prompt_tokens for row in test}
    assert tune == list(scenario.requests("tune", traces))


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_draw_is_another_one_of_the_same_traffic(name: str, traces: Path) -> None:
    scenario = SCENARIOS[name]
    draws = [list(scenario.requests("test", traces, draw)) for draw in range(len(SEEDS["test"]))]
    assert (draws[0] == draws[1]) is (name in TRACED and scenario.traffic.copies == 1)
    # Of few requests, as many as independent arrivals differ by.
    few = 3 * (2 / len(draws[1])) ** 0.5
    assert len(draws[0]) == pytest.approx(len(draws[1]), rel=max(0.05, few))
    for rows in draws:
        assert rows[-1].arrival_s < scenario.duration


def test_no_two_kinds_of_traffic_are_drawn_alike() -> None:
    seeds = [seed for part in SEEDS.values() for seed in part]
    assert len({*seeds, *(seed + BESIDE for seed in seeds)}) == 2 * len(seeds)


@pytest.mark.parametrize("scenario", [*SCENARIOS.values(), *QUICK.values()], ids=lambda scenario: scenario.name)
def test_the_document_is_a_manifest_that_a_fleet_can_begin_with(scenario) -> None:
    bounds = scenario.document["autoscaling"]
    assert bounds["minReplicas"] <= scenario.start_replicas <= bounds["maxReplicas"]
    assert 0 < scenario.warm_seconds < scenario.duration
    assert scenario.profile.name == scenario.profile_name


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    assert "--traces" in (SCENARIOS["azure"].missing(None) or "")
    assert "is not there" in (SCENARIOS["azure"].missing(tmp_path) or "")
    assert SCENARIOS["bursts"].missing(None) is None


def test_identity_follows_the_rate_and_not_the_words() -> None:
    scenario = SCENARIOS["bursts"]
    assert replace(scenario, what="else").identity() == scenario.identity()
    assert QUICK["bursts"].identity() != scenario.identity()
    louder = replace(scenario.traffic, pattern=SCENARIOS["step"].traffic.pattern)
    assert replace(scenario, traffic=louder).identity() != scenario.identity()


def test_two_kinds_of_requests_come_side_by_side() -> None:
    scenario = SCENARIOS["thinking"]
    rows = list(scenario.requests("tune", None))
    first = [row for row in rows if row.arrival_s < 600]
    last = [row for row in rows if row.arrival_s >= 1200]
    # Short answers alone are 16 a second; the long ones grow from 1 in 65 to all there are.
    assert len(first) > 5 * len(last)
    assert sum(row.output_tokens for row in last) / len(last) > 4 * sum(row.output_tokens for row in first) / len(first)


def test_a_smaller_pool_is_part_of_the_machine() -> None:
    scenario = SCENARIOS["thinking"]
    assert scenario.profile.kv_blocks == scenario.kv_blocks == scenario.identity()["hardware"]["kv_blocks"]
    assert replace(scenario, kv_blocks=None).profile.kv_blocks > 2 * scenario.profile.kv_blocks


def test_identity_follows_what_comes_beside() -> None:
    scenario = SCENARIOS["thinking"]
    alone = replace(scenario, traffic=replace(scenario.traffic, beside=None))
    assert alone.identity() != scenario.identity()


def test_thickening_keeps_the_shape_and_multiplies_the_traffic() -> None:
    rows = [TraceRow(float(i), 100 + i, 10 + i) for i in range(50)]
    thick = list(thickened(rows, 3, seed=0))
    assert len(thick) == 150
    assert sorted(row.prompt_tokens for row in thick) == sorted(3 * [row.prompt_tokens for row in rows])
    # Two seconds late at most: by any moment at least as many as the trace had 2 s before, times three.
    for moment in range(2, 50):
        early = sum(row.arrival_s <= moment for row in thick)
        assert 3 * (moment - 1) <= early <= 3 * (moment + 1)
    assert list(thickened(rows, 1, seed=0)) == rows


def test_traffic_is_one_or_the_other() -> None:
    for scenario in SCENARIOS.values():
        assert (scenario.traffic.trace is None) != (scenario.traffic.pattern is None)
    assert Traffic().limits == Traffic().limits
