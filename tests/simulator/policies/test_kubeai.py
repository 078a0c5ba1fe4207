"""KubeAI by hand: the mean of a window that begins full of zeros, delays as numbers of observations."""

from peer_policies.bounds import Bounds
from peer_policies.kubeai import KubeAI, KubeAISettings


def test_a_step_to_four_times_the_target_needs_150_seconds_for_the_second_replica(play) -> None:
    policy = KubeAI(KubeAISettings(), Bounds(1, 10))
    history = play(policy, 600, replicas=1, in_flight=lambda _: 400)
    # 400 * 15 / 60 = 100 fits one replica; the sixteenth observe, at 150 s, does not.
    assert history[:16] == [1] * 15 + [2]
    assert history[-1] == 4


def test_down_after_the_delay_straight_to_the_target(play) -> None:
    policy = KubeAI(KubeAISettings(target_requests=10, time_window_seconds=10.0), Bounds(1, 10))
    history = play(policy, 80, replicas=1, in_flight=lambda now: 80 if now < 20 else 10)
    # Three such observations are waited for, the fourth acts.
    assert history == [8, 8, 8, 8, 8, 1, 1, 1, 1]


def test_a_look_that_is_not_lower_starts_the_delay_anew(play) -> None:
    policy = KubeAI(KubeAISettings(target_requests=10, time_window_seconds=10.0), Bounds(1, 10))
    history = play(policy, 80, replicas=8, in_flight=lambda now: 80 if now == 20 else 10)
    assert history == [8, 8, 8, 8, 8, 8, 1, 1, 1]


def test_requests_at_the_gateway_count_and_bounds_hold(observe, stats) -> None:
    policy = KubeAI(KubeAISettings(target_requests=10, time_window_seconds=10.0), Bounds(2, 5))
    assert policy.decide(observe(0, [stats()] * 2, in_flight=12, held=25)).replicas == 4
    assert policy.decide(observe(10, [stats()] * 4, in_flight=500)).replicas == 5
    for now in (20, 30, 40, 50):
        last = policy.decide(observe(now, [stats()] * 5))
    assert last.replicas == 2


def test_the_cap_is_left_alone(observe, stats) -> None:
    assert KubeAI(KubeAISettings(), Bounds(1, 5)).decide(observe(0, [stats()], in_flight=900)).cap is None
