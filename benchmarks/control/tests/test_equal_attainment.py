"""Who is compared with whom at equal attainment, against the definition; and the mean of ratios."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.outcome.equal_attainment import HEALTHY, NO_PEERS, UNTUNED, compared, mean_ratio
from control.search import DEFAULT, TARGETS, Row
from control.tests.blank_score import BLANK

TUNED = [f"{target:.0%}" for target in TARGETS]


def row(
    contender: str, point: str, attained: float, hours: float, preempted: float = 0.0, scenario: str = "bursts"
) -> Row:
    score = replace(BLANK, slo_attainment=attained, gpu_hours=hours, preemption_rate=preempted)
    return Row(scenario, contender, point, {}, None, score, contender == "fixed-in-hindsight")


rows_of_one_scenario = st.builds(
    row,
    st.sampled_from(["paternoster", "without-cap-loop", "fixed-in-hindsight", "kubeai", "wva"]),
    st.sampled_from([DEFAULT, *TUNED]),
    st.sampled_from([0.9, 0.94, 0.96, 0.98, 0.995]),
    st.integers(1, 9).map(float),
    st.sampled_from([0.0, HEALTHY, 0.021, 0.3]),
)


@given(st.lists(rows_of_one_scenario, max_size=12))
def test_the_peer_attains_as_much_and_none_that_does_is_cheaper(rows: list[Row]) -> None:
    peers = [r for r in rows if r.contender not in NO_PEERS and not r.in_hindsight]
    comparisons = list(compared(rows))
    own = [c.ours for c in comparisons if c.point != UNTUNED]
    assert own == ([r for r in rows if r.contender == "paternoster"] if peers else [])
    someone_is_tuned = any(r.point != DEFAULT for r in peers)
    untuned = [c.ours for c in comparisons if c.point == UNTUNED]
    assert untuned == ([r for r in own if r.point == DEFAULT] if someone_is_tuned else [])
    for comparison in comparisons:
        point, attained = comparison.point, comparison.ours.test.slo_attainment
        allowed = [r for r in peers if point != DEFAULT or r.point == DEFAULT]
        needed = attained if point in (DEFAULT, UNTUNED) else min(attained, float(point[:-1]) / 100)
        equal = [r for r in allowed if r.test.slo_attainment >= needed]
        healthy = [r for r in equal if r.test.preemption_rate <= HEALTHY]
        of_both = [(equal, comparison.peer, comparison.ratio), (healthy, comparison.healthy, comparison.healthy_ratio)]
        for some, peer, ratio in of_both:
            hours = [r.test.gpu_hours for r in some]
            if peer is None:
                assert not some
                assert ratio is None
            else:
                assert peer in some
                assert peer.test.gpu_hours == min(hours)
                assert ratio == comparison.ours.test.gpu_hours / min(hours)
        each = [comparison.ratio_to(name) for name in {r.contender for r in peers}]
        assert max((ratio for ratio in each if ratio is not None), default=None) == comparison.ratio


def test_scenarios_are_not_mixed() -> None:
    rows = [
        row("paternoster", "99%", 0.99, 4.0, scenario="bursts"),
        row("kubeai", "99%", 0.99, 8.0, scenario="bursts"),
        row("paternoster", "99%", 0.99, 6.0, scenario="step"),
        row("kubeai", "99%", 0.99, 3.0, scenario="step"),
    ]
    assert [c.ratio for c in compared(rows)] == [0.5, 2.0]


ratios = st.lists(st.floats(0.01, 100), min_size=1, max_size=6)


@given(ratios)
def test_whoever_is_the_baseline_the_mean_says_the_same(values: list[float]) -> None:
    there, back = (mean_ratio(some) for some in (values, [1 / r for r in values]))
    assert there is not None
    assert back is not None
    assert there * back == pytest.approx(1)
    assert min(values) * 0.999 <= there <= max(values) * 1.001


def test_who_has_no_peer_is_left_out_of_the_mean() -> None:
    assert mean_ratio([0.5, None, 2.0]) == pytest.approx(1.0)
    assert mean_ratio([None]) is None
    assert mean_ratio([]) is None
