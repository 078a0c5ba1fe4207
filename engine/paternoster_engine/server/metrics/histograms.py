"""Histograms of what requests and steps took, kept as it happens."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import Histogram
from prometheus_client.metrics_core import Metric

from paternoster_contract.metrics import ENGINE_METRICS, KV_RESIDENCY_BUCKETS, MODEL_LABEL
from paternoster_engine.core.batch import StepOutput
from paternoster_engine.core.request import Choices, FinishReason, Request

WHOLE = (FinishReason.STOP, FinishReason.LENGTH)
"""Ends of whole answers."""


@dataclass(slots=True)
class Sum:
    """A histogram's sum and count, for those who need only the mean."""

    seconds: float = 0.0
    count: int = 0

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        self.count += 1


class Histograms:
    """Observes in the engine's thread; may be collected in any other."""

    def __init__(self, model: str) -> None:
        self._families = {
            declared.key: Histogram(
                declared.name, declared.help, [MODEL_LABEL], buckets=declared.buckets, registry=None
            )
            for declared in ENGINE_METRICS
            if declared.kind == "histogram" and declared.buckets is not KV_RESIDENCY_BUCKETS
        }
        self._histograms = {key: family.labels(model) for key, family in self._families.items()}
        self._last_token: dict[str, float] = {}
        self.first_tokens = Sum()
        """Arrival to first token."""
        self.inter_tokens = Sum()
        """Time between two tokens of a request."""
        self.grammars: Counter[str] = Counter()
        """Times that a grammar was compiled, found, and refused."""

    def collect(self, key: str) -> Metric:
        """The histogram of requests and steps that the contract calls ``key``."""
        (family,) = self._families[key].collect()
        family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        return family

    def record_step(self, num_tokens: int, seconds: float) -> None:
        self._histograms["step_tokens"].observe(num_tokens)
        self._histograms["step_seconds"].observe(seconds)

    def record_samples(self, outputs: Sequence[StepOutput], now: float) -> None:
        for output in outputs:
            request = output.request
            if request.gives_way:
                continue
            # What comes to a request for no tokens comes with its end.
            came = request.params.max_tokens == 0 and output.finish_reason is FinishReason.STOP
            if output.token is None and not came:
                continue
            previous = self._last_token.get(request.request_id)
            if previous is None:
                self._histograms["time_to_first_token_seconds"].observe(now - request.spec.arrival)
                self.first_tokens.add(now - request.spec.arrival)
            else:
                self._histograms["inter_token_latency_seconds"].observe(now - previous)
                self.inter_tokens.add(now - previous)
            self._last_token[request.request_id] = now

    def observe_compile(self, seconds: float) -> None:
        """A grammar was compiled, or was not because it cannot be."""
        self._histograms["grammar_compile_seconds"].observe(seconds)

    def record_end(self, request: Request) -> None:
        """Sizes and latencies are observed for whole answers only: those cut short would make the engine look quick.

        Those of batches would make it look slow: none of their requests is observed.
        """
        if request.gives_way:
            return
        self._last_token.pop(request.request_id, None)
        self._histograms["request_preemptions"].observe(request.num_preemptions)
        if request.matcher is not None:
            self._histograms["request_grammar_seconds"].observe(request.matcher.seconds)
        self._ended_choice(request)
        if request.finish_reason not in WHOLE:
            return
        self._ended_whole(request)

    def _ended_whole(self, request: Request) -> None:
        assert request.first_scheduled is not None
        assert request.first_token is not None
        assert request.last_token is not None
        self._histograms["request_prompt_tokens"].observe(request.num_prompt)
        self._histograms["request_generation_tokens"].observe(len(request.output))
        self._histograms["e2e_request_latency_seconds"].observe(request.last_token - request.spec.arrival)
        self._histograms["request_queue_time_seconds"].observe(request.first_scheduled - request.spec.arrival)
        self._histograms["request_prefill_time_seconds"].observe(request.first_token - request.first_scheduled)
        self._histograms["request_decode_time_seconds"].observe(request.last_token - request.first_token)
        self._histograms["request_inference_time_seconds"].observe(request.last_token - request.first_scheduled)
        cached = min(request.num_found, request.num_prompt)
        self._histograms["request_prefill_computed_tokens"].observe(request.num_prompt - cached)
        num_output = len(request.output)
        if num_output > 1:
            mean = (request.last_token - request.first_token) / (num_output - 1)
            self._histograms["request_time_per_output_token_seconds"].observe(mean)
        if request.params.max_tokens > 0:
            self._histograms["request_params_max_tokens"].observe(request.params.max_tokens)

    def _ended_choice(self, request: Request) -> None:
        """What is of a prompt, and not of each of its choices, is observed with the last of these."""
        whole = request.finish_reason in WHOLE
        choices = request.choices
        if choices is None:
            choices = Choices(n=1, num_open=1)
        choices.num_open -= 1
        choices.whole = choices.whole and whole
        choices.most_output = max(choices.most_output, len(request.output))
        if choices.num_open == 0 and choices.whole:
            self._histograms["request_params_n"].observe(choices.n)
            self._histograms["request_max_generation_tokens"].observe(choices.most_output)
