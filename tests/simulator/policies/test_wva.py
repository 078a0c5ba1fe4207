"""WVA V2 by hand: capacity from memory and from compute, supply against demand, and the HPA behind it."""

from peer_policies.bounds import Bounds
from peer_policies.lengths import Lengths
from peer_policies.wva import SaturationAnalyzer, Wva, WvaSettings

# 16,000 tokens an engine: k1 = 12,800. B O / (I + O) = 512 * 100 / 500 = 102 > S = 64, so k2 = 64 * 450 = 28,800.
SHORT = Lengths(prompt=400.0, output=100.0)


def desired(analyzer, engines, kv, queue, replicas=None, pending=0, lengths=SHORT):
    pods = {f"p{i}": engine for i, engine in enumerate(engines)}
    return analyzer.desired(
        dict(zip(pods, kv, strict=True)),
        dict(zip(pods, queue, strict=True)),
        pods,
        lengths,
        replicas=len(engines) if replicas is None else replicas,
        pending=pending,
    )


def test_up_by_what_is_missing(stats, facts) -> None:
    # Demand 2 * 0.8 * 16,000 = 25,600; / 0.85 = 30,118 - 25,600 = 4,518 is missing: one more.
    assert desired(SaturationAnalyzer(WvaSettings(), facts), [stats()] * 2, [0.8, 0.8], [0, 0]) == 3
    # A queue of 40 adds 40 * 400 = 16,000 each, and saturates: k2 is what is in use, 12,800.
    # (25,600 + 32,000) / 0.85 = 67,765 - 25,600 = 42,165 / 12,800 = 3.3.
    assert desired(SaturationAnalyzer(WvaSettings(), facts), [stats()] * 2, [0.8, 0.8], [40, 40]) == 6


def test_pending_replicas_are_supply(stats, facts) -> None:
    analyzer = SaturationAnalyzer(WvaSettings(), facts)
    assert desired(analyzer, [stats()] * 2, [0.8, 0.8], [0, 0], replicas=3, pending=1) == 3


def test_between_the_thresholds_it_holds(stats, facts) -> None:
    # Demand 19,200: / 0.85 = 22,588 < 25,600, and 25,600 - 19,200 / 0.7 < 0.
    assert desired(SaturationAnalyzer(WvaSettings(), facts), [stats()] * 2, [0.6, 0.6], [0, 0]) == 2


def test_down_by_whole_replicas_of_spare(stats, facts) -> None:
    # Demand 4 * 3,200 = 12,800; spare = 51,200 - 12,800 / 0.7 = 32,914 = 2.57 replicas.
    assert desired(SaturationAnalyzer(WvaSettings(), facts), [stats()] * 4, [0.2] * 4, [0] * 4) == 2
    assert desired(SaturationAnalyzer(WvaSettings(), facts), [stats()] * 4, [0.0] * 4, [0] * 4) == 1


def test_what_saturation_showed_is_remembered_for_the_class_of_lengths(stats, facts) -> None:
    analyzer = SaturationAnalyzer(WvaSettings(), facts)
    # Saturated at 30 % of KV: the capacity is 4,800.
    desired(analyzer, [stats()], [0.3], [5])
    # Now 4 replicas at 20 %: demand 12,800 / 0.85 = 15,059 < 4 * 4,800; spare 19,200 - 18,286 < one.
    assert desired(analyzer, [stats()] * 4, [0.2] * 4, [0] * 4) == 4
    # Long outputs are another class: min(512 * 600 / 1000, 64) * 700 = 44,800, so memory binds.
    assert desired(analyzer, [stats()] * 4, [0.2] * 4, [0] * 4, lengths=Lengths(400.0, 600.0)) == 2


def test_compute_binds_short_prompts(stats, facts) -> None:
    analyzer = SaturationAnalyzer(WvaSettings(), facts)
    # 64 sequences of 100 + 50 tokens: 9,600 < 12,800. Demand 9,600 / 0.85 = 11,294 - 9,600 = 1,694.
    assert desired(analyzer, [stats()], [0.6], [0], lengths=Lengths(100.0, 100.0)) == 2


def test_the_hpa_follows_after_its_window(play, stats, facts) -> None:
    policy = Wva(WvaSettings(), Bounds(1, 10), facts)
    history = play(policy, 300, lambda _: stats(kv_blocks_used=800), replicas=2)
    # The first analysis, at 7.5 s, wants 3; the HPA began with 2 and waits until that is 240 s old.
    changed = next(i for i, replicas in enumerate(history) if replicas != 2)
    assert changed * policy.period_seconds == 247.5
    assert history[changed] == 3


def test_above_ten_replicas_the_hpas_tolerance_hides_one(play, stats, facts) -> None:
    settings = WvaSettings(stabilization_window_seconds=0.0)
    # 71 % in use: demand / 0.85 asks for 4.4 % more, one of 12; 1.083 is within the tolerance.
    assert set(play(Wva(settings, Bounds(1, 20), facts), 200, lambda _: stats(kv_blocks_used=710), replicas=12)) == {12}
    assert play(Wva(settings, Bounds(1, 20), facts), 30, lambda _: stats(kv_blocks_used=710), replicas=6)[-1] == 7


def test_bounds_hold(play, stats, facts) -> None:
    settings = WvaSettings(stabilization_window_seconds=0.0)
    busy = play(Wva(settings, Bounds(2, 5), facts), 900, lambda _: stats(kv_blocks_used=990, waiting=50), replicas=2)
    idle = play(Wva(settings, Bounds(2, 5), facts), 900, lambda _: stats(), replicas=5)
    assert (max(busy), min(idle)) == (5, 2)
