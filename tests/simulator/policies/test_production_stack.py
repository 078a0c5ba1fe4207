"""production-stack by hand: sum of the last scrape over the threshold, by the HPA's rules."""

from peer_policies.bounds import Bounds
from peer_policies.production_stack import ProductionStack, ProductionStackSettings


def test_waiting_requests_over_the_threshold(play, stats) -> None:
    policy = ProductionStack(ProductionStackSettings(), Bounds(1, 10))
    # Two engines with 6 waiting each: 12 / 5 -> 3, then 18 / 5 -> 4, then 24 / 5 -> 5 ...
    history = play(policy, 45, lambda _: stats(waiting=6), replicas=2)
    assert history == [2, 3, 3, 4, 4, 5, 5]


def test_what_came_after_the_scrape_is_not_seen(play, stats) -> None:
    policy = ProductionStack(ProductionStackSettings(), Bounds(1, 10))
    history = play(policy, 22.5, lambda now: stats(waiting=40 if now == 7.5 else 5), replicas=1)
    assert history == [1, 1, 1, 1]


def test_no_queue_shrinks_to_the_minimum_after_the_window(play, stats) -> None:
    policy = ProductionStack(ProductionStackSettings(), Bounds(2, 10))
    history = play(policy, 330, lambda _: stats(running=64, waiting=0), replicas=8)
    # The HPA begins with a wish for what is there, at 7.5 s, which leaves the window 300 s later.
    assert history[:41] == [8] * 41
    assert history[41] == 2


def test_a_longer_window_and_a_rate(play, stats) -> None:
    settings = ProductionStackSettings(scale_down_stabilization_window_seconds=60.0, scale_down_pods=1)
    policy = ProductionStack(settings, Bounds(1, 10))
    history = play(policy, 142.5, lambda _: stats(waiting=0), replicas=4)
    assert history[:9] == [4] * 9
    assert history[9] == 3
    assert history[17] == 2
    assert min(history[9:17]) == 3
