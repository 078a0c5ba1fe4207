"""Mean lengths of requests, as several peers take them from counters."""

from dataclasses import dataclass

from peer_policies.prometheus import Prometheus


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mean tokens of a request."""

    prompt: float
    output: float


def mean_lengths(prometheus: Prometheus, window_seconds: float, now: float) -> Lengths:
    """Mean prompt of the requests begun and mean output of those ended in the window; 0 without any."""
    begun = prometheus.increase(lambda stats: stats.queue_count_total, window_seconds, now)
    ended = prometheus.increase(lambda stats: stats.requests_finished_total, window_seconds, now)
    prompt = prometheus.increase(lambda stats: stats.prompt_tokens_total, window_seconds, now)
    output = prometheus.increase(lambda stats: stats.generation_tokens_total, window_seconds, now)
    return Lengths(prompt / begun if begun else 0.0, output / ended if ended else 0.0)
