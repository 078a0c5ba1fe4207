"""The beam searches of one API call: from prompts to whole texts."""

from collections.abc import Callable, Iterator, Sequence

from paternoster_engine.core.batch import StepOutput
from paternoster_engine.core.request import Request
from paternoster_engine.sampling.beam_search import BeamSearch, Hypothesis
from paternoster_engine.server.generation.answer_decoder import AnswerDecoder
from paternoster_engine.server.generation.failures import FAILURES, failure_of
from paternoster_engine.server.generation.generation import Generation, Usage, cached_tokens
from paternoster_engine.server.generation.output_text import SequenceDelta, put_together
from paternoster_engine.server.parsers.answer_parser import AnswerParser


class BeamGeneration(Generation):
    """One request for each prompt, whose answers are all there at its end and none of them before."""

    def __init__(
        self,
        decoder: AnswerDecoder,
        requests: Sequence[Request],
        skip_special_tokens: bool = True,
        *,
        best: int,
        echo: bool = False,
        has_token_ids: bool = False,
        new_parser: Callable[[], AnswerParser] | None = None,
    ) -> None:
        """``best``: how many of a prompt's answers :meth:`collect_answers` gives.

        ``echo``: show prompts before them. ``has_token_ids``: deltas have token ids.
        """
        super().__init__(
            decoder,
            requests,
            skip_special_tokens,
            best=best,
            echo=echo,
            has_token_ids=has_token_ids,
            new_parser=new_parser,
        )
        self._reasoning_tokens = 0

    @property
    def usage(self) -> Usage:
        """All answers found count, also those that are not given; of reasoning, that of the given ones."""
        return Usage(
            prompt_tokens=sum(request.num_prompt for request in self._requests),
            completion_tokens=sum(
                len(found.tokens) for request in self._requests for found in _finished_hypotheses(request)
            ),
            reasoning_tokens=self._reasoning_tokens,
            cached_tokens=cached_tokens(self._requests),
        )

    async def collect_answers(self) -> list[SequenceDelta]:
        """The best answers to each prompt, best first.

        Raises :class:`StepFailed`, :class:`DeadlineExceeded` or :class:`EngineEnding`.
        """
        async for _ in self.stream_deltas():
            raise AssertionError("a search was seen before its end")
        return [delta for index in range(len(self._requests)) for delta in self._hypothesis_deltas(index)]

    def _collect_outputs(self, outputs: Sequence[StepOutput]) -> tuple[dict[int, SequenceDelta], Exception | None]:
        """Nothing is visible yet; a search has ended, or failed."""
        for output in outputs:
            self._open.discard(output.request.request_id)
            if output.finish_reason is not None and output.finish_reason in FAILURES:
                return {}, failure_of(output.request, output.finish_reason)
        return {}, None

    def _hypothesis_deltas(self, index: int) -> Iterator[SequenceDelta]:
        request = self._requests[index]
        for found in _finished_hypotheses(request)[: self._best]:
            text = self._new_text(request)
            deltas = []
            if self._echo:
                logprobs_of_prompt = None if request.params.prompt_logprobs is None else request.prompt_logprobs
                deltas.append(text.echo_prompt(self._echoes[index], logprobs_of_prompt))
            last = len(found.tokens) - 1
            for place, token in enumerate(found.tokens):
                logprobs = found.logprobs[place] if found.logprobs else None
                deltas.append(text.add_token(token, found.finish_reason if place == last else None, logprobs))
            self._reasoning_tokens += text.num_reasoning_tokens
            yield put_together(deltas)


def _finished_hypotheses(request: Request) -> Sequence[Hypothesis]:
    assert isinstance(request.branch_selector, BeamSearch), f"request {request.request_id} is no search"
    return request.branch_selector.finished
