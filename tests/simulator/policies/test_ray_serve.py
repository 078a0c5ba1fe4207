"""Ray Serve by hand: the look-back, the delays, the factors."""

import pytest

from peer_policies.bounds import Bounds
from peer_policies.ray_serve import RayServe, RayServeSettings


def test_up_when_it_was_wished_throughout_the_delay(play) -> None:
    policy = RayServe(RayServeSettings(), Bounds(1, 10))
    history = play(policy, 40, replicas=1, in_flight=lambda _: 8)
    # int(30 / 5) = 6 wishes are waited for, the seventh acts: 8 / 2 replicas.
    assert history == [1] * 6 + [4] * 3


def test_a_pause_starts_the_delay_anew(play) -> None:
    settings = RayServeSettings(look_back_period_s=5.0, upscale_delay_s=10.0)
    history = play(RayServe(settings, Bounds(1, 10)), 30, replicas=1, in_flight=lambda t: 2 if t == 10 else 8)
    assert history == [1, 1, 1, 1, 1, 4, 4]


def test_down_only_after_ten_minutes(play) -> None:
    history = play(RayServe(RayServeSettings(), Bounds(1, 10)), 610, replicas=5, in_flight=lambda _: 4)
    assert history[:120] == [5] * 120
    assert history[120] == 2


def test_the_look_back_is_a_mean(play) -> None:
    settings = RayServeSettings(upscale_delay_s=0.0, downscale_delay_s=0.0)
    # 30 s of observations hold six numbers: (8 + 5 * 2) / 6 = 3, and 3 / 2 rounds up to 2.
    history = play(RayServe(settings, Bounds(1, 10)), 25, replicas=1, in_flight=lambda t: 8 if t == 0 else 2)
    assert history == [4, 3, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("factor", "ongoing", "wanted"),
    [(1.0, 2, 1), (0.5, 2, 3), (0.1, 6, 3)],
)
def test_downscaling_factor_moves_a_share_and_never_sticks(observe, stats, factor, ongoing, wanted) -> None:
    settings = RayServeSettings(downscale_delay_s=0.0, downscaling_factor=factor)
    assert RayServe(settings, Bounds(1, 10)).decide(observe(0, [stats()] * 4, in_flight=ongoing)).replicas == wanted


def test_upscaling_factor_overshoots_within_bounds(observe, stats) -> None:
    settings = RayServeSettings(upscale_delay_s=0.0, upscaling_factor=2.0)
    assert RayServe(settings, Bounds(1, 10)).decide(observe(0, [stats()] * 2, in_flight=8)).replicas == 6
    assert RayServe(settings, Bounds(1, 5)).decide(observe(0, [stats()] * 2, in_flight=8)).replicas == 5
