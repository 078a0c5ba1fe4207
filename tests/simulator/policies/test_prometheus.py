"""Scrapes and windows."""

import pytest

from peer_policies.lengths import Lengths, mean_lengths
from peer_policies.prometheus import Prometheus


def test_between_scrapes_the_last_one_answers(observe, stats) -> None:
    prometheus = Prometheus(15.0)
    for now, waiting in ((0, 1), (7, 5), (15, 2), (22, 9)):
        prometheus.scrape(observe(now, [stats(waiting=waiting)]))
    assert [s.waiting for s in prometheus.latest().values()] == [2]


def test_peak_over_a_window_leaves_out_its_far_edge(observe, stats) -> None:
    prometheus = Prometheus(15.0)
    for now, waiting in ((0, 50), (15, 7), (30, 9), (45, 3), (60, 4)):
        prometheus.scrape(observe(now, [stats(waiting=waiting)]))
    assert prometheus.peak(lambda s: float(s.waiting), 60.0, 60.0) == {"pod-0": 9.0}
    assert prometheus.peak(lambda s: float(s.waiting), 61.0, 60.0) == {"pod-0": 50.0}


def test_a_pod_that_is_gone_is_stale(observe, stats) -> None:
    prometheus = Prometheus(15.0)
    prometheus.scrape(observe(0, [stats(waiting=3), stats(waiting=4)]))
    prometheus.scrape(observe(15, [stats(waiting=5)]))
    assert prometheus.peak(lambda s: float(s.waiting), 60.0, 15.0) == {"pod-0": 5.0}


def test_increase_counts_a_restart_from_zero(observe, stats) -> None:
    prometheus = Prometheus(15.0)
    prometheus.scrape(observe(0, [stats(instance="a", requests_total=100)]))
    prometheus.scrape(observe(15, [stats(instance="a", requests_total=130)]))
    prometheus.scrape(observe(30, [stats(instance="b", requests_total=8)]))
    assert prometheus.increase(lambda s: s.requests_total, 300.0, 30.0) == 38


def test_mean_lengths_over_the_fleet(observe, stats) -> None:
    prometheus = Prometheus(5.0)
    prometheus.scrape(observe(0, [stats(), stats()]))
    one = stats(queue_count_total=3, prompt_tokens_total=3000, requests_finished_total=1, generation_tokens_total=400)
    two = stats(queue_count_total=1, prompt_tokens_total=200, requests_finished_total=3, generation_tokens_total=80)
    prometheus.scrape(observe(5, [one, two]))
    assert mean_lengths(prometheus, 60.0, 5.0) == Lengths(prompt=800.0, output=120.0)


@pytest.mark.parametrize("window", [60.0, 300.0])
def test_no_requests_have_no_length(observe, stats, window) -> None:
    prometheus = Prometheus(5.0)
    prometheus.scrape(observe(0, [stats()]))
    assert mean_lengths(prometheus, window, 0.0) == Lengths(0.0, 0.0)
