"""vLLM's ``/metrics`` as counters of ``/stats``: whatever its version is, the names must be there, and count.

Versions 0.30 to 0.33 have the same names. A later one is read alike, and what it has renamed, or counts no more, is
named. The operator's own request of one token, before a replica is ready, makes those of a prompt, a first token and an
end count; tokens after the first, cached ones and preemptions count later.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paternoster_operator.engines.adapter import StatsUnavailable
from paternoster_operator.engines.answers import read_samples

NAMES: Mapping[str, str] = {
    "prompt_tokens_total": "vllm:prompt_tokens_total",
    "cached_prompt_tokens_total": "vllm:prompt_tokens_cached_total",
    "generation_tokens_total": "vllm:generation_tokens_total",
    "requests_finished_total": "vllm:request_success_total",
    "preemptions_total": "vllm:num_preemptions_total",
    "queue_seconds_total": "vllm:request_queue_time_seconds_sum",
    "queue_count_total": "vllm:request_queue_time_seconds_count",
    "first_token_seconds_total": "vllm:time_to_first_token_seconds_sum",
    "first_token_count_total": "vllm:time_to_first_token_seconds_count",
    "inter_token_seconds_total": "vllm:inter_token_latency_seconds_sum",
    "inter_token_count_total": "vllm:inter_token_latency_seconds_count",
}
"""Samples of ``/metrics`` by the counter of ``/stats`` that each has."""
OPTIONAL: Mapping[str, str] = {"requests_rejected_full_total": "vllm:admission_rejections_total"}
"""Samples that vLLM has since 0.32, and only once a request was refused."""
READ = frozenset({*OPTIONAL.values(), *NAMES.values()})
COUNTED_WITH: Mapping[str, tuple[str, ...]] = {
    "generation_tokens_total": ("prompt_tokens_total", "first_token_count_total"),
    "first_token_count_total": ("generation_tokens_total", "first_token_seconds_total"),
    "requests_finished_total": ("queue_count_total",),
    "queue_count_total": ("requests_finished_total",),
    "inter_token_count_total": ("generation_tokens_total", "inter_token_seconds_total"),
}
"""Counters of which none is 0 once the first has counted, since vLLM counts them of the same request at once."""
_MODEL = "model_name"


@dataclass(frozen=True, slots=True)
class VllmMetrics:
    """What one answer has."""

    model: str
    counters: Mapping[str, float]


def read_metrics(text: bytes) -> VllmMetrics:
    """The counters of ``text``, summed over vLLM's engines.

    Raises :class:`StatsUnavailable` with the names that are missing or do not count.
    """
    totals: dict[str, float] = {}
    models: dict[str, None] = {}
    for sample in read_samples(text, READ):
        totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
        models[sample.labels.get(_MODEL, "")] = None
    missing = [name for name in NAMES.values() if name not in totals]
    if missing:
        raise StatsUnavailable(f"/metrics has no {', '.join(missing)}")
    counters = {field: _read_number(field, totals[name]) for field, name in NAMES.items()}
    for field, others in COUNTED_WITH.items():
        if counters[field] and (idle := [NAMES[other] for other in others if not counters[other]]):
            counted = f"{NAMES[field]} is {counters[field]:g}"
            raise StatsUnavailable(f"/metrics: {', '.join(idle)} is 0 where {counted}: this vLLM counts otherwise")
    refused = {field: _read_number(field, totals.get(name, 0.0)) for field, name in OPTIONAL.items()}
    return VllmMetrics(next(iter(models)), {**counters, **refused, "requests_rejected_total": sum(refused.values())})


def _read_number(field: str, value: float) -> float:
    """Counts of tokens and requests are whole."""
    return value if field.endswith("seconds_total") else int(value)
