"""The sequences of one API call: from prompts to deltas of text."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from statistics import fmean
from typing import NamedTuple

from paternoster_contract.request_phases import PHASES, RequestPhases, WaitReason
from paternoster_contract.stream_journal import MAX_JOURNAL_BYTES, JournalEntry, encode_entries
from paternoster_engine.core.batch import StepOutput
from paternoster_engine.core.request import FinishReason, Request, TokenLogprobs
from paternoster_engine.server.answer_headers import set_answer_header, set_prompt_headers
from paternoster_engine.server.continuation.journal import CONTINUABLE, StreamJournal, entry_of
from paternoster_engine.server.continuation.restored import replace_ended_donors, restore_output
from paternoster_engine.server.errors import HandOverRequired, StepFailed
from paternoster_engine.server.generation.answer_decoder import AnswerDecoder
from paternoster_engine.server.generation.failures import failure_of
from paternoster_engine.server.generation.output_text import (
    EchoedPrompt,
    SequenceDelta,
    SequenceText,
    prompt_text,
    put_together,
)
from paternoster_engine.server.parsers.answer_parser import AnswerParser
from paternoster_engine.server.parsers.events import Content, Event
from paternoster_engine.server.pieces import PIECE
from paternoster_engine.server.text_chains.prompt_text import PromptText as ChainedText
from paternoster_engine.server.text_chains.prompt_text import current_prompt_text

TOKENS_PER_LINE = 64
"""Tokens of a line of a journal before its answer: with 20 log probabilities each, a line has about 40 KiB."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one API call, over all its sequences; a prompt counts once however many choices it has."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0
    """Tokens of reasoning among the completion's."""
    cached_tokens: int = 0
    """Prompt tokens that the prefix cache had when their request was first admitted."""


class AnsweredPrompt(NamedTuple):
    """One prompt of a call, as far as its answer may have it."""

    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprobs]
    """Log probabilities of all its tokens but the first, if requested; whole once its first sequence has ended."""


class Generation:
    """Submitted sequences whose text is awaited. The caller that starts one closes it."""

    def __init__(
        self,
        decoder: AnswerDecoder,
        requests: Sequence[Request],
        skip_special_tokens: bool = True,
        *,
        choices: int = 1,
        best: int | None = None,
        echo: bool = False,
        only_echo: bool = False,
        has_token_ids: bool = False,
        new_parser: Callable[[], AnswerParser] | None = None,
        journal: StreamJournal | None = None,
        is_stream: bool = False,
    ) -> None:
        """``choices``: sequences for each prompt, which stand next to each other in ``requests``.

        ``best``: how many of them :meth:`collect_answers` gives, all by default. ``echo``: show prompts before their
        outputs; ``only_echo``: and nothing of these. ``has_token_ids``: deltas have token ids. ``new_parser``: makes
        what takes one output apart. ``journal``: of the answer; what it has is the beginning. ``is_stream``: it
        records each delta.
        """
        self._loop = decoder.loop
        self._tokenizer = decoder.tokenizer
        self._requests = requests
        self._choices = choices
        self._best = choices if best is None else best
        self._echo = echo
        self._only_echo = only_echo
        self._index = {request.request_id: index for index, request in enumerate(requests)}
        self._skip_special_tokens = skip_special_tokens
        self._has_token_ids = has_token_ids
        self._new_parser = new_parser
        self._open = set(self._index)
        self._echoes: list[EchoedPrompt] = []
        """Echo of each prompt, once it is queued."""
        self._outputs: asyncio.Queue[StepOutput] = asyncio.Queue()
        has_text = choices == 1 and not echo and bool(requests[0].spec.text_pieces)
        self._text = current_prompt_text() if has_text else None
        self._events: list[Event] = []
        """Events of the first sequence's answer, where its text continues that of its prompt."""
        self.journal = journal
        self._unanswered = decoder.unanswered
        self._is_stream = is_stream
        self._num_written = [0] * len(requests)
        """Tokens of each sequence that the gateway has, of an answer that is not streamed."""
        self._num_shown = [0] * len(requests)
        """Characters of each sequence that were passed on."""
        self._ends: dict[int, FinishReason] = {}
        """End of each sequence that the scheduler ended."""
        self._replayed: list[tuple[int, SequenceDelta]] = []
        """Deltas that an engine before this one made."""
        self._later: dict[int, list[JournalEntry]] = {}
        """What such an engine computed of each sequence whose prompt needs log probabilities, until it has them."""

    @cached_property
    def _texts(self) -> list[SequenceText]:
        """Text of each sequence; made once outputs are read, so that a request is queued before its answer begins."""
        return [self._new_text(request) for request in self._requests]

    def _new_text(self, request: Request) -> SequenceText:
        return SequenceText(
            self._tokenizer,
            request.params,
            self._skip_special_tokens,
            None if self._new_parser is None else self._new_parser(),
            has_token_ids=self._has_token_ids,
        )

    @property
    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=sum(request.num_prompt for request in self._requests[:: self._choices]),
            completion_tokens=sum(text.num_tokens for text in self._texts),
            reasoning_tokens=sum(text.num_reasoning_tokens for text in self._texts),
            cached_tokens=cached_tokens(self._requests[:: self._choices]),
        )

    def report_prompts(self) -> Usage:
        """Set the headers of the answer that have the counts and phases of its prompts, and return all counts.

        Its first token has come.
        """
        usage = self.usage
        set_prompt_headers(usage.prompt_tokens, usage.cached_tokens)
        set_answer_header(PHASES, self.phases.encode())
        return usage

    @property
    def phases(self) -> RequestPhases:
        """Times of the sequences until now; of those that another engine began, its part here."""
        queue, waited_for, prefill = 0.0, WaitReason.STEP, 0.0
        for each in self._requests:
            if each.first_scheduled is None:
                continue
            if (seconds := each.first_scheduled - each.spec.arrival) > queue:
                queue, waited_for = seconds, each.waited_for
            if each.first_token is not None:
                prefill = max(prefill, each.first_token - each.first_scheduled)
        return RequestPhases(queue, waited_for, prefill, sum(each.num_preemptions for each in self._requests))

    @property
    def final_phases(self) -> RequestPhases | None:
        """Phases once every sequence has ended."""
        return None if self._open else self.phases

    @property
    def prompts(self) -> list[AnsweredPrompt]:
        return [AnsweredPrompt(request.prompt, request.prompt_logprobs) for request in self._requests[:: self._choices]]

    @property
    def stop_strings(self) -> list[str | None]:
        """Stop string that ended each sequence."""
        return [text.stop_string for text in self._texts]

    async def start(self) -> None:
        """Queue all sequences or none; raises :class:`AdmissionError`.

        Of a stream that began elsewhere, the sequences that have not ended; raises :class:`InvalidValue` for a journal
        of another call.
        """
        if self.journal is not None and self.journal.is_continuation:
            await self._replay(self.journal)
        if self.journal is not None and self.journal.is_unanswered:
            self._unanswered.add(self)
        if self._open:
            requests = [request for request in self._requests if request.request_id in self._open]
            await self._loop.submit(requests, self._outputs.put_nowait)
        await self._set_echoes()

    async def _set_echoes(self) -> None:
        if self._echo and not self._echoes:
            self._echoes = [await prompt_text(self._tokenizer, prompt.token_ids) for prompt in self.prompts]

    async def _replay(self, journal: StreamJournal) -> None:
        """Make the deltas of the journal again, and the sequences as far as they were."""
        has_prompts = not (self._needs_prompts and journal.is_unanswered)
        restore_output(self._requests, journal.entries, journal.vocab_size, has_prompts=has_prompts)
        await self._set_echoes()
        self._num_written = [len(request.output) for request in self._requests]
        if not has_prompts:
            for entry in journal.entries:
                self._later.setdefault(entry.choice, []).append(entry)
            return

        self._replayed = await self._replay_entries(journal.entries)
        replace_ended_donors(self._requests, self._open)

    async def _replay_entries(self, entries: Sequence[JournalEntry]) -> list[tuple[int, SequenceDelta]]:
        """The deltas of ``entries``; others have their turn in between."""
        deltas, tokens = [], 0
        for entry in entries:
            if (tokens := tokens + len(entry.tokens)) > PIECE:
                await asyncio.sleep(0)
                tokens = len(entry.tokens)
            deltas.append((entry.choice, self._replay_entry(entry)))
        return deltas

    async def _replay_later(self, outputs: Sequence[StepOutput]) -> list[tuple[int, SequenceDelta]]:
        """Replay sequences whose prompts are computed now, with the first of ``outputs`` that has a token."""
        computed = [self._index[output.request.request_id] for output in outputs if output.token is not None]
        return await self._replay_entries([entry for index in computed for entry in self._later.pop(index, ())])

    def _replay_entry(self, entry: JournalEntry) -> SequenceDelta:
        last = len(entry.tokens) - 1
        reason = None if entry.finish_reason is None else FinishReason(entry.finish_reason)
        delta = put_together(
            [
                self._add_token(entry.choice, token, reason if i == last else None)
                for i, token in enumerate(entry.tokens)
            ]
        )
        if delta.finish_reason is not None:
            self._open.discard(self._requests[entry.choice].request_id)
        return delta

    def hand_over(self) -> None:
        """End the work as the end of the engine does: another engine goes on with it."""
        open_requests = [request for request in self._requests if request.request_id in self._open]
        if open_requests:
            self._loop.abort([open_requests[0].request_id])
            self._outputs.put_nowait(StepOutput(open_requests[0], None, FinishReason.ABORT))

    def _encode_output(self) -> bytes:
        """The journal of what was read so far; empty where the answer needs more than its tokens, and begins anew."""
        journal = b"\n".join(self._encode_lines([0] * len(self._requests)))
        return journal if len(journal) <= MAX_JOURNAL_BYTES else b""

    def encode_progress(self) -> list[bytes]:
        """Lines of the journal of what was read since the last call; none of a stream, whose frames have theirs."""
        if self._is_stream:
            return []
        lines = self._encode_lines(self._num_written)
        self._num_written = [
            max(written, self._count_writable(text))
            for written, text in zip(self._num_written, self._texts, strict=True)
        ]
        return lines

    @property
    def _needs_prompts(self) -> bool:
        """Whether the answer has log probabilities of its prompts."""
        return any(request.params.prompt_logprobs is not None for request in self._requests)

    def _encode_lines(self, firsts: Sequence[int]) -> list[bytes]:
        """The journal of each sequence's tokens from one of ``firsts`` on."""
        if self._needs_prompts and self._is_stream:
            return []
        lines = []
        for index, (request, text, first) in enumerate(zip(self._requests, self._texts, firsts, strict=True)):
            last = self._count_writable(text)
            for start in range(first, last, TOKENS_PER_LINE):
                end = min(start + TOKENS_PER_LINE, last)
                reason = self._ends.get(index) if end == text.num_tokens else None
                entry = entry_of(index, request, start, request.output[start:end], reason)
                lines.append(encode_entries([entry]).encode())
        return lines

    def _count_writable(self, text: SequenceText) -> int:
        """Tokens that another engine may begin with: it computes prompts anew only for sequences that go on."""
        return max(0, text.num_tokens - self._needs_prompts)

    def close(self) -> None:
        """End what is not finished before the next step. May be called more than once."""
        self._loop.abort(self._open)
        self._open.clear()

    async def stream_deltas(self) -> AsyncIterator[tuple[int, SequenceDelta]]:
        """(index of the sequence, what became visible) until all have ended; a slow reader gets larger deltas.

        Raises :class:`StepFailed`, :class:`EngineEnding` or :class:`DeadlineExceeded`; in place of the first two,
        :class:`HandOverRequired` where another engine can go on with the whole answer.
        """
        for index, delta in self._replayed:
            if index == 0 and self._text is not None and delta.finish_reason is None:
                self._continue_text(self._text, delta)
            for part in self._visible_parts(index, delta):
                yield index, part
        while self._open:
            outputs = [await self._outputs.get()]
            while not self._outputs.empty() and len(outputs) < PIECE:
                outputs.append(self._outputs.get_nowait())
            if len(outputs) == PIECE:
                await asyncio.sleep(0)
            if self._later:
                for index, delta in await self._replay_later(outputs):
                    for part in self._visible_parts(index, delta):
                        yield index, part
            deltas, failure = self._collect_outputs(outputs)
            for index, delta in deltas.items():
                if index == 0 and self._text is not None:
                    self._continue_text(self._text, delta)
                for part in self._visible_parts(index, delta):
                    yield index, part
            if failure is not None:
                if self.journal is not None:
                    self.journal.failure = failure
                    if isinstance(failure, CONTINUABLE) and self.journal.is_unanswered:
                        failed = isinstance(failure, StepFailed)
                        raise HandOverRequired(self.journal.numerics, self._encode_output(), failed=failed)
                raise failure

    def _visible_parts(self, index: int, delta: SequenceDelta) -> list[SequenceDelta]:
        """``delta``, its end by itself where log probabilities are of tokens without text, an end token's for example.

        Clients take the text of an answer from its tokens, too, and pass over chunks without text; vLLM, which makes a
        token a step, sends them so. Without text or end there is nothing to send.
        """
        self._num_shown[index] += len(delta.text)
        if not delta.text and delta.finish_reason is None:
            return []
        unseen = sum(token.offset >= self._num_shown[index] for token in delta.tokens)
        if delta.finish_reason is None or not delta.text or not unseen:
            return [delta]
        seen = replace(delta, finish_reason=None, tokens=delta.tokens[:-unseen], token_ids=delta.token_ids[:-unseen])
        return [seen, SequenceDelta("", delta.finish_reason, delta.tokens[-unseen:], (), delta.token_ids[-unseen:])]

    def _continue_text(self, text: ChainedText, delta: SequenceDelta) -> None:
        self._events += [Content(delta.text)] if self._new_parser is None else delta.events
        if delta.finish_reason is not None:
            request = self._requests[0]
            pieces = text.locate_answer(self._events, request.num_prompt, request.output[:], self._tokenizer)
            self._loop.attach_text(request, pieces)
            self._events.clear()

    async def collect_answers(self) -> list[SequenceDelta]:
        """The whole text of every sequence, or of each prompt's best ones: those likeliest a token, best first."""
        deltas_of: list[list[SequenceDelta]] = [[] for _ in self._requests]
        async for index, delta in self.stream_deltas():
            deltas_of[index].append(delta)
        whole = [put_together(deltas) for deltas in deltas_of]
        if self._best == self._choices:
            return whole
        best = []
        for first in range(0, len(whole), self._choices):
            group = range(first, first + self._choices)
            best += sorted(group, key=self._mean_logprob, reverse=True)[: self._best]
        return [whole[index] for index in best]

    def _mean_logprob(self, index: int) -> float:
        """Over the tokens of the answer, without those that were sampled after a stop string."""
        of_answer = islice(self._requests[index].logprobs, self._texts[index].num_tokens)
        return fmean(logprobs.logprob for logprobs in of_answer)

    def _collect_outputs(self, outputs: Sequence[StepOutput]) -> tuple[dict[int, SequenceDelta], Exception | None]:
        """What became visible of each sequence, and why there will be no more if one of them failed."""
        deltas_of: dict[int, list[SequenceDelta]] = {}
        pushed: dict[int, list[StepOutput]] = {}
        failure: Exception | None = None
        for output in outputs:
            request_id = output.request.request_id
            if request_id not in self._open:
                # Sampled between a stop string and the abort that it caused.
                continue
            if output.token is None:
                self._open.discard(request_id)
                assert output.finish_reason is not None
                failure = failure_of(output.request, output.finish_reason)
                break
            index = self._index[request_id]
            delta = self._add_token(index, output.token, output.finish_reason)
            deltas_of.setdefault(index, []).append(delta)
            pushed.setdefault(index, []).append(output)
            if delta.finish_reason is not None:
                self._open.discard(request_id)
                self._loop.abort([request_id], FinishReason.STOP)
        if self.journal is not None and self._is_stream:
            for index, some in pushed.items():
                first = self._texts[index].num_tokens - len(some)
                tokens = [output.token for output in some if output.token is not None]
                self.journal.record_entry(entry_of(index, self._requests[index], first, tokens, some[-1].finish_reason))
        return {index: put_together(deltas) for index, deltas in deltas_of.items()}, failure

    def _add_token(self, index: int, token: int, finish_reason: FinishReason | None) -> SequenceDelta:
        request, text = self._requests[index], self._texts[index]
        params = request.params
        if finish_reason is not None:
            self._ends[index] = finish_reason
        opening = None
        if self._echo and text.num_tokens == 0:
            prompt = self._echoes[index // self._choices]
            opening = text.echo_prompt(prompt, None if params.prompt_logprobs is None else request.prompt_logprobs)
        if self._only_echo:
            assert opening is not None
            return put_together([opening, SequenceDelta("", FinishReason.LENGTH)])
        logprobs = None if params.logprobs is None else request.logprobs[text.num_tokens]
        delta = text.add_token(token, finish_reason, logprobs)
        return delta if opening is None else put_together([opening, delta])


def cached_tokens(requests: Sequence[Request]) -> int:
    """See :class:`Usage`."""
    return sum(min(request.num_found, request.num_prompt) for request in requests)
