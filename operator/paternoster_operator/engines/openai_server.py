"""A server of the OpenAI API, read by its own ``/metrics`` where these are names that are known: llama.cpp's."""

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from paternoster_contract.admin import LiveConfigPatch
from paternoster_contract.stats import EngineStats, Unreported
from paternoster_operator.engines.adapter import VALUES_WITHOUT_LIMITS, LimitsCall, StatsRequest, StatsUnavailable
from paternoster_operator.engines.answers import LONGEST_METRICS, sum_samples
from paternoster_operator.engines.openai_arguments import OpenAiKind

LLAMA_CPP: Mapping[str, str] = {
    "running": "llamacpp:requests_processing",
    "waiting": "llamacpp:requests_deferred",
    "prompt": "llamacpp:prompt_tokens_total",
    "generated": "llamacpp:tokens_predicted_total",
    "generation_seconds": "llamacpp:tokens_predicted_seconds_total",
}
"""Names of every version that is read; counters of a request grow when it ends."""
_CACHED = "llamacpp:prompt_tokens_cached_total"
"""Sample of newer versions; prompt tokens are those that were computed."""
_READ = frozenset({*LLAMA_CPP.values(), _CACHED})
_UNREPORTED = tuple(Unreported)
_ZEROS = tuple(name for name in EngineStats.model_fields if name.endswith("_total"))


class OpenAiAdapter:
    """What ``/metrics`` has; gateways hold the live cap."""

    kind = OpenAiKind()
    without_limits = None
    stats_requests = (StatsRequest("/metrics", LONGEST_METRICS, samples=_READ),)

    def parse_stats(self, answers: Sequence[bytes], now: float) -> EngineStats:
        found = sum_samples(answers[0], _READ)
        missing = [name for name in LLAMA_CPP.values() if name not in found]
        if missing:
            raise StatsUnavailable(
                f"/metrics has no {', '.join(missing)}: it must be llama.cpp's, started with --metrics"
            )
        numbers = {name: found[sample] for name, sample in LLAMA_CPP.items()}
        prompt, generated = int(numbers["prompt"]), int(numbers["generated"])
        cached = int(found.get(_CACHED, 0))
        document = {
            **dict.fromkeys(_ZEROS, 0),
            **VALUES_WITHOUT_LIMITS,
            "model": "",
            "time": now,
            "running": int(numbers["running"]),
            "waiting": int(numbers["waiting"]),
            "kv_block_size": 1,
            "kv_blocks": 1,
            "kv_blocks_used": 0,
            "prompt_tokens_total": prompt + cached,
            "cached_prompt_tokens_total": cached,
            "generation_tokens_total": generated,
            "computed_tokens_total": prompt + generated,
            "inter_token_seconds_total": numbers["generation_seconds"],
            "inter_token_count_total": generated,
            "unreported": _UNREPORTED,
        }
        try:
            return EngineStats.model_validate(document)
        except ValidationError as error:
            raise StatsUnavailable.from_validation(error) from None

    def limits_call(self, limits: LiveConfigPatch) -> LimitsCall | None:
        """None: it has no call that moves them."""
        return None
