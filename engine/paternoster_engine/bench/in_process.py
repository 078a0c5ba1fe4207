"""Requests of a load sent through an engine in this process: what the engine does, with no HTTP around it."""

import time
from collections.abc import Callable, Iterable, Sequence

from paternoster_engine.core.batch import StepOutput
from paternoster_engine.core.errors import AdmissionError
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.engine import Engine
from paternoster_load.results import BenchRequest, RequestEnd, RequestResult

EMPTY_STEP_PAUSE = 0.002
"""Seconds to wait after a step that computed nothing, as when a batch is being put off."""
DONE = (FinishReason.STOP, FinishReason.LENGTH)


class InProcess:
    """Feeds one engine and steps it. ``results`` has the form of those of a server, times included."""

    def __init__(
        self,
        engine: Engine,
        *,
        temperature: float = 0.0,
        ignore_eos: bool = True,
        eos_token_ids: Sequence[int] = (),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``clock``: the engine's own; requests are stamped with it."""
        self.engine = engine
        self.steps = 0
        self._temperature = temperature
        self._ignore_eos = ignore_eos
        self._eos = tuple(eos_token_ids)
        self._clock = clock
        self._sleep = sleep

    def serve(
        self,
        requests: Iterable[BenchRequest],
        *,
        max_concurrency: int | None = None,
        duration: float | None = None,
        on_result: Callable[[RequestResult], None] = lambda _: None,
    ) -> list[RequestResult]:
        """Take each request in at its arrival time and step until all are done; results in order of arrival.

        ``max_concurrency`` holds arrivals back while that many are unfinished; ``duration`` is when taking in stops, s.
        """
        results: list[RequestResult] = []
        live: dict[str, RequestResult] = {}
        arrivals = iter(requests)
        begin = self._clock()
        coming = next(arrivals, None)
        while True:
            elapsed = self._clock() - begin
            if coming is not None and duration is not None and max(elapsed, coming.arrival_s) >= duration:
                coming = None
            if coming is not None and coming.arrival_s <= elapsed and len(live) < (max_concurrency or len(live) + 1):
                result = self._add(coming, live)
                results.append(result)
                if result.error:
                    on_result(result)
                coming = next(arrivals, None)
            elif live:
                self._step(live, on_result)
            elif coming is not None:
                self._sleep(max(coming.arrival_s - elapsed, 0.0))
            else:
                return results

    def _add(self, wanted: BenchRequest, live: dict[str, RequestResult]) -> RequestResult:
        """Queue it; the result is complete already when the engine refuses."""
        if isinstance(wanted.prompt, str):
            raise ValueError(f"request {wanted.index}: is text: must be token ids, for an engine in process")
        params = SamplingParams(
            max_tokens=wanted.max_tokens, temperature=self._temperature, ignore_eos=self._ignore_eos
        )
        result = RequestResult(wanted.index, self._clock(), wanted.prompt_tokens)
        request = Request(
            RequestSpec(
                str(wanted.index), wanted.prompt, params, result.start, eos_token_ids=self._eos, seed=abs(wanted.index)
            )
        )
        try:
            self.engine.scheduler.add(request)
        except AdmissionError as error:
            result.outcome, result.error = RequestEnd.REFUSED, str(error)
        else:
            live[request.request_id] = result
        return result

    def _step(self, live: dict[str, RequestResult], on_result: Callable[[RequestResult], None]) -> None:
        counters = self.engine.scheduler.counters
        computed = counters.computed_tokens
        outputs = self.engine.step()
        now = self._clock()
        for output in outputs:
            self._record_output(output, live[output.request.request_id], now)
            if output.finish_reason is not None:
                on_result(live.pop(output.request.request_id))
        if counters.computed_tokens > computed:
            self.steps += 1
        elif not outputs:
            self._sleep(EMPTY_STEP_PAUSE)

    def _record_output(self, output: StepOutput, result: RequestResult, now: float) -> None:
        if output.token is not None:
            if result.ttft is None:
                result.ttft = now - result.start
            else:
                result.itls.append(now - result.start - result.latency)
            result.output_tokens += 1
        # Of an unfinished request: when its last token came.
        result.latency = now - result.start
        if output.finish_reason in DONE:
            result.outcome = RequestEnd.COMPLETED
        elif output.finish_reason is not None:
            result.error = f"the engine ended it: {output.finish_reason}"
