"""The text of one sequence as its tokens come."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from paternoster_engine.core.request import FinishReason, TokenLogprobs
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.detokenizer import IncrementalDetokenizer
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.generation.open_call import OpenCall
from paternoster_engine.server.generation.stop_strings import StopStrings
from paternoster_engine.server.parsers.answer_parser import AnswerParser
from paternoster_engine.server.parsers.events import CallBegin, Content, Event, join_events
from paternoster_engine.server.pieces import made_in_pieces


class TokenText(NamedTuple):
    """A token of the text with its log probability."""

    token: int
    offset: int
    """Characters of the sequence's text before those that the token completes."""
    logprobs: TokenLogprobs | None
    """None for the first token of a prompt, which follows nothing."""


@dataclass(frozen=True, slots=True)
class SequenceDelta:
    """Text that became visible; the last delta of a sequence carries the reason of its end."""

    text: str
    finish_reason: FinishReason | None = None
    tokens: tuple[TokenText, ...] = ()
    """Tokens since the delta before, if the call requests log probabilities."""
    events: tuple[Event, ...] = ()
    """The text, split by a parser; what may become a mark is held back, so they can be behind it."""
    token_ids: tuple[int, ...] = ()
    """Ids of the output's tokens since the delta before, if the call requests ids."""


def put_together(deltas: Sequence[SequenceDelta]) -> SequenceDelta:
    """Join deltas of one sequence that follow each other; without any the result is empty."""
    if len(deltas) == 1:
        return deltas[0]
    return SequenceDelta(
        "".join(delta.text for delta in deltas),
        deltas[-1].finish_reason if deltas else None,
        tuple(token for delta in deltas for token in delta.tokens),
        tuple(join_events(event for delta in deltas for event in delta.events)),
        tuple(token for delta in deltas for token in delta.token_ids),
    )


class EchoedPrompt(NamedTuple):
    """A prompt as it is echoed: marks are part of it."""

    tokens: Sequence[int]
    offsets: Sequence[int]
    """Characters before those that each token completes."""
    text: str


async def prompt_text(tokenizer: Tokenizer, tokens: Sequence[int]) -> EchoedPrompt:
    """Others have their turn in between."""
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=False)
    texts = await made_in_pieces(tokens, lambda piece: [detokenizer.add_token(token) for token in piece])
    offsets = list(accumulate(map(len, texts), initial=0))[:-1]
    return EchoedPrompt(tokens, offsets, "".join([*texts, detokenizer.flush()]))


class SequenceText:
    """Detokenizes one sequence and watches for stop strings and stop tokens, which in a thought or a call are text."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        params: SamplingParams,
        skip_special_tokens: bool = True,
        parser: AnswerParser | None = None,
        *,
        has_token_ids: bool = False,
    ) -> None:
        """``parser``: splits the text; without one there are no events. ``has_token_ids``: deltas have those."""
        self._parser = parser
        self._tokenizer = tokenizer
        self._params = params
        self._skip_special_tokens = skip_special_tokens
        # Of "Paris is" the model writes " in", and a client that joins both wants the space.
        shown = frozenset[int]() if parser is None else parser.shown
        self._detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens, continues=True, shown=shown)
        self._stops = StopStrings(params.stop, include=params.include_stop_str_in_output)
        self._call = OpenCall()
        self.num_tokens = 0
        """Tokens so far, the one that ended the sequence included."""
        self.num_reasoning_tokens = 0
        """Number of those that are of reasoning and of the marks around it."""
        self._num_characters = 0
        self._held_back: list[TokenText] = []
        """Tokens whose text is held back."""
        self._has_token_ids = has_token_ids
        self._pending_ids: list[int] = []
        """Ids of the same tokens, if the call requests them."""
        self._undecided: list[TokenText] = []
        """Tokens that may or may not be of the content."""
        self._calls = False
        """Whether there was a call."""

    @property
    def stop_string(self) -> str | None:
        """The one that ended the text."""
        return self._stops.matched

    def echo_prompt(self, prompt: EchoedPrompt, logprobs: Sequence[TokenLogprobs] | None) -> SequenceDelta:
        """The prompt's own text, to be shown before the output's; no stop string is looked for in it.

        ``logprobs``: of all its tokens but the first; None if the call does not request them.
        """
        self._num_characters = len(prompt.text)
        if logprobs is None:
            return SequenceDelta(prompt.text)
        tokens = zip(prompt.tokens, prompt.offsets, [None, *logprobs], strict=True)
        return SequenceDelta(prompt.text, None, tuple(TokenText(*token) for token in tokens))

    def add_token(
        self, token: int, finish_reason: FinishReason | None, logprobs: TokenLogprobs | None = None
    ) -> SequenceDelta:
        """Add a token, with the scheduler's reason if it is the last; a stop string overrules that reason."""
        self.num_tokens += 1
        if self._has_token_ids:
            self._pending_ids.append(token)
        if logprobs is not None:
            self._held_back.append(TokenText(token, self._num_characters, logprobs))
        if self._ends_answer(token):
            finish_reason = FinishReason.STOP
        ended_by_token = finish_reason is FinishReason.STOP
        hidden = ended_by_token and not self._params.include_stop_str_in_output
        text = "" if hidden else self._detokenizer.add_token(token)
        if finish_reason is not None:
            text += self._detokenizer.flush()
        self._num_characters += len(text)
        reasoned = self._reasons
        text, events = self._pass_text(text)
        if self._stops.stopped:
            finish_reason = FinishReason.STOP
        elif finish_reason is not None and (rest := self._stops.flush()):
            text += rest
            events += self._parse_text(rest)
        reasoned = reasoned or self._reasons
        if self._parser is not None:
            self.num_reasoning_tokens += reasoned
            if self._params.logprobs is not None and not reasoned:
                self._undecided.append(self._held_back[-1])
            if finish_reason is not None:
                events += self._parser.finish()
        return self._text_delta(text, finish_reason, tuple(events))

    @property
    def _reasons(self) -> bool:
        return self._parser is not None and self._parser.reasoning

    def _ends_answer(self, token: int) -> bool:
        """Whether it is a stop token of the answer; where there is no parser, the scheduler has ended it by itself."""
        return self._parser is not None and token in self._params.stop_token_ids and not self._is_exempt(self._parser)

    def _is_exempt(self, parser: AnswerParser) -> bool:
        """Whether nothing ends the answer at what comes next."""
        return parser.reasoning or self._call.open or self.num_tokens < self._params.min_tokens

    def _pass_text(self, text: str) -> tuple[str, list[Event]]:
        """Pass a token's text on, up to a stop string of the answer, with the parser's events of it."""
        if not self._params.stop:
            return text, self._parse_text(text)
        if self._parser is None:
            return self._stops.add_text(text) if self.num_tokens >= self._params.min_tokens else text, []
        shown, events = "", list[Event]()
        # Within a token's text a thought may end or a call begin: each character has its own state.
        for character in text:
            exempt = self._is_exempt(self._parser)
            piece = self._stops.flush() + character if exempt else self._stops.add_text(character)
            if piece:
                shown += piece
                events += self._parse_text(piece)
            if self._stops.stopped:
                break
        return shown, join_events(events)

    def _parse_text(self, text: str) -> list[Event]:
        if self._parser is None:
            return []
        events = self._parser.parse_piece(text)
        if self._params.stop or self._params.stop_token_ids:
            self._call.follow_events(events)
        self._calls = self._calls or any(isinstance(event, CallBegin) for event in events)
        return events

    def _text_delta(self, text: str, finish_reason: FinishReason | None, events: tuple[Event, ...]) -> SequenceDelta:
        if self._undecided:
            events = self._with_tokens(events)
        tokens: tuple[TokenText, ...] = ()
        token_ids: tuple[int, ...] = ()
        if text or finish_reason:
            tokens, self._held_back = tuple(self._held_back), []
            token_ids, self._pending_ids = tuple(self._pending_ids), []
        return SequenceDelta(text, finish_reason, tokens, events, token_ids)

    def _with_tokens(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """``events``, the first content of which has its tokens; a token that is of two parts counts as content."""
        if not events:
            return ()
        tokens, self._undecided = self._undecided, []
        for i, event in enumerate(events):
            if isinstance(event, Content):
                content = Content(event.text, self._of_content(tokens, event.text))
                return (*events[:i], content, *events[i + 1 :])
        return events

    def _of_content(self, tokens: Sequence[TokenText], text: str) -> tuple[TokenText, ...]:
        """Select the ``tokens`` of the content, which begins with ``text``."""
        if self._calls:
            return self._behind_marks(tokens, text)
        # White space around what is no content belongs to that.
        start = 0 if text[:1].isspace() else next((i for i, token in enumerate(tokens) if not self._is_blank(token)), 0)
        return tuple(tokens[start:])

    def _behind_marks(self, tokens: Sequence[TokenText], text: str) -> tuple[TokenText, ...]:
        """Select ``tokens`` from where ``text`` begins, behind its white space: a call's marks may come before it."""
        pieces = [self._tokenizer.token_bytes(token.token) for token in tokens]
        start = max(0, b"".join(pieces).find(text.lstrip().encode()))
        ends = accumulate(map(len, pieces))
        return tuple(token for token, end in zip(tokens, ends, strict=True) if end > start)

    def _is_blank(self, token: TokenText) -> bool:
        return self._tokenizer.token_bytes(token.token).isspace()
