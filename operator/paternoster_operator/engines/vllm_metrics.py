"""vLLM's ``/metrics`` as counters of ``/stats``: a table of names for each minor version, and nothing guessed."""

from collections.abc import Mapping
from dataclasses import dataclass

from paternoster_operator.engines.adapter import StatsUnavailable
from paternoster_operator.engines.answers import read_samples

_SINCE_0_30: Mapping[str, str] = {
    "prompt_tokens_total": "vllm:prompt_tokens_total",
    "cached_prompt_tokens_total": "vllm:prompt_tokens_cached_total",
    "generation_tokens_total": "vllm:generation_tokens_total",
    "queue_seconds_total": "vllm:request_queue_time_seconds_sum",
    "queue_count_total": "vllm:request_queue_time_seconds_count",
    "first_token_seconds_total": "vllm:time_to_first_token_seconds_sum",
    "first_token_count_total": "vllm:time_to_first_token_seconds_count",
    "inter_token_seconds_total": "vllm:inter_token_latency_seconds_sum",
    "inter_token_count_total": "vllm:inter_token_latency_seconds_count",
}
NAMES: Mapping[str, Mapping[str, str]] = dict.fromkeys(("0.30", "0.31", "0.32", "0.33"), _SINCE_0_30)
"""By minor version: for each counter of ``/stats`` the sample that has it."""
OPTIONAL: Mapping[str, str] = {"requests_rejected_full_total": "vllm:admission_rejections_total"}
"""Samples that vLLM has since 0.32, and only once a request was refused."""
READ = frozenset({*OPTIONAL.values(), *(name for names in NAMES.values() for name in names.values())})
"""Samples that are read of any version."""
_MODEL = "model_name"


@dataclass(frozen=True, slots=True)
class VllmMetrics:
    """What one answer has."""

    model: str
    counters: Mapping[str, float]


def read_metrics(text: bytes, version: str) -> VllmMetrics:
    """The counters of ``text``, summed over vLLM's engines; raises :class:`StatsUnavailable` with the name at fault."""
    names = NAMES.get(minor := ".".join(version.split(".")[:2]))
    if names is None:
        raise StatsUnavailable(f"vLLM {minor[:20]!r} has no table of metrics: must be {', '.join(NAMES)}")
    totals: dict[str, float] = {}
    models: dict[str, None] = {}
    for sample in read_samples(text, {*names.values(), *OPTIONAL.values()}):
        totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
        models[sample.labels.get(_MODEL, "")] = None
    missing = [name for name in names.values() if name not in totals]
    if missing:
        raise StatsUnavailable(f"/metrics has no {', '.join(missing)}")
    counters = {field: _read_number(field, totals[name]) for field, name in names.items()}
    refused = {field: _read_number(field, totals.get(name, 0.0)) for field, name in OPTIONAL.items()}
    return VllmMetrics(next(iter(models)), {**counters, **refused, "requests_rejected_total": sum(refused.values())})


def _read_number(field: str, value: float) -> float:
    """Counts of tokens and requests are whole."""
    return value if field.endswith("seconds_total") else int(value)
