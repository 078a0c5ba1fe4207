"""A compiled grammar, and its state after the tokens of one sequence."""

import re
import time
from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from typing import Self

from llguidance import LLMatcher, LLTokenizer

from paternoster_engine.core.matching import SamplerRow
from paternoster_engine.sampling.allowed_tokens import without_ends
from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.limits import FORCED_TIME, MASK_TIME, MAX_ITEMS, STEP_TIME, parser_limits
from paternoster_engine.sampling.grammars.number_bound import NumberBound, most_digits
from paternoster_engine.sampling.grammars.schemas.rewriting import Unenforced
from paternoster_engine.sampling.output_follower import OutputFollower

TOO_SLOW = f"one of its masks takes more than {MASK_TIME:g} s of a processor: it forces too long a text"
ANSWER_OPENINGS = (b'{"', b'[{"', b'"')
"""What may be before the first name in an answer."""
LEXER_FULL = "too many states"
TOO_WIDE = re.compile(r"row has \d+ items|Too many items")
"""In llguidance's words."""
MAX_REASON = 300
"""Most characters of llguidance's message in an error."""


class Grammar:
    """A compiled grammar, shared by all sequences that follow it."""

    def __init__(
        self, tokenizer: LLTokenizer, text: str, items: int = MAX_ITEMS, numbers: NumberBound | None = None
    ) -> None:
        """Compile ``text``, a grammar of llguidance, without the interpreter's lock; raises :class:`GrammarError`.

        ``items``: most ways to go on at one place (:func:`most_items`). ``numbers``: bounds the digits of numbers; None
        where the client says what the text is, character by character.
        """
        self._tokenizer = tokenizer
        self._compiled = partial(LLMatcher, tokenizer, text, log_level=0, limits=parser_limits(items))
        self._numbers = numbers
        self._most_digits = 0 if numbers is None else most_digits(text)
        self.num_tokens = tokenizer.vocab_size
        """Size of the tokenizer's vocabulary; a model may have more rows."""
        started = time.thread_time()
        self.start = self._compiled()
        """The state before the first token; it is not changed."""
        self._renews = time.thread_time() - started < MASK_TIME
        self.full = False
        """Its lexer has its most states, and compiling it anew would delay the whole batch."""
        if self.start.is_error():
            raise GrammarError(shorten_reason(self.start.get_error()))
        self.unenforced: Sequence[Unenforced] = ()
        """Keywords of its schemas that it does not enforce."""
        self.too_slow = False
        """One of its masks has delayed the whole batch: it computes no other."""
        self.forces = True
        """What it forces is worth asking for: not where that is long to spell."""
        warnings = self.start.get_grammar_warnings()
        if warnings:
            # What llguidance only warns of it does not enforce.
            raise GrammarError(shorten_reason(warnings[0]))

    def check_masks(self) -> None:
        """Raise :class:`GrammarError` if there is no answer that it allows, or its first mask reaches a limit."""
        start, begun = self.start.deep_copy(), time.thread_time()
        mask = start.compute_bitmask()
        if time.thread_time() - begun > MASK_TIME:
            raise GrammarError(TOO_SLOW)
        if not any(mask) or start.is_error():
            raise GrammarError(f"it allows no answer: {shorten_reason(start.get_error())}")
        self._check_first_name()

    def _check_first_name(self) -> None:
        """Raise :class:`GrammarError` where the first object's names reach a limit: a grammar is widest there."""
        matcher = self.start_matcher()
        matcher.consume_tokens(matcher.compute_ff_tokens())
        if matcher.is_error():
            # Of what is forced alone, which masks may do without.
            return
        for opening in ANSWER_OPENINGS:
            tokens = self.spell_text(opening)
            if matcher.validate_tokens(tokens) == len(tokens):
                matcher.consume_tokens(tokens)
                matcher.compute_bitmask()
                break
        if matcher.is_error():
            raise GrammarError(shorten_reason(matcher.get_error()))

    def begin_output(self) -> "GrammarMatcher":
        """At the beginning of an answer; some microseconds."""
        return GrammarMatcher(self, self.start_matcher())

    def start_matcher(self) -> LLMatcher:
        """Return a state before the first token."""
        return self.start.deep_copy()

    def renew_lexer(self, full: LLMatcher) -> bool:
        """Whether matchers that begin now get another lexer.

        All copies of a matcher share the states of one lexer, at most :func:`parser_limits`; ``full`` is the beginning
        of those whose lexer has no room left.
        """
        if full is self.start and self._renews:
            self.start = self._compiled()
        self.full = full is self.start
        return not self.full

    def bound_numbers(self, mask: bytes, output: Sequence[int], matcher: LLMatcher) -> bytes:
        """``mask`` behind ``output`` without tokens that only make a number longer than any that is meant."""

        def mask_behind(token: int) -> bytes:
            ahead = matcher.deep_copy()
            ahead.consume_token(token)
            return b"" if ahead.is_error() else ahead.compute_bitmask()

        if self._numbers is None:
            return mask
        return self._numbers.bound_mask(mask, output, self._most_digits, mask_behind)

    def spell_text(self, text: bytes) -> list[int]:
        """Tokens of ``text``, none of them a control token."""
        tokens: list[int] = self._tokenizer.tokenize_bytes(text)
        return tokens


class GrammarMatcher(OutputFollower):
    """Follows one output through the grammar."""

    def __init__(self, grammar: Grammar, matcher: LLMatcher) -> None:
        super().__init__()
        self._grammar = grammar
        self._matcher = matcher
        self.fault: str | None = None
        """Why no token can be chosen any more; None while some can."""
        self.seconds = 0.0
        """Time that its masks took."""
        self._mask_time = 0.0
        """Seconds of a processor for a mask, on average over the last ones of the request and of its proposed rows."""
        self._start = grammar.start
        """The state that :attr:`_matcher` is a copy of, followed by ``_since``."""
        self._since: list[int] = []

    @property
    def max_proposed(self) -> int:
        """Number of proposals that have their masks within :data:`STEP_TIME`, with the request's own."""
        return max(0, int(STEP_TIME / max(self._mask_time, 1e-6)) - 1)

    def allowed_mask(self, row: SamplerRow) -> bytes | None:
        """The mask of the tokens that may come next: bit ``t % 8`` of byte ``t // 8`` for token ``t``.

        Empty if any token may come; None, with a fault, if none can. Where none can come only if proposed tokens are
        right, there is no fault; those rows are requested after the request's own, in order. Tokens that end an answer
        are allowed where the grammar can end: with ``ignore_eos``, and before ``min_tokens``, only where it must.
        """
        started, begun = time.perf_counter(), time.thread_time()
        then, ahead = self._state_at(row), row.num_proposed > 0
        mask, fault = then._compute_mask(row)
        if fault is not None and not ahead and self._renew():
            mask, fault = self._compute_mask(row)
        spent = time.thread_time() - begun
        self._mask_time += (spent - self._mask_time) / 8
        if spent > MASK_TIME:
            self._grammar.too_slow = True
        if self._grammar.too_slow:
            self.fault = TOO_SLOW
        elif fault is not None and not ahead:
            self.fault = fault
        self.seconds += time.perf_counter() - started
        return mask if fault is None and then.fault is None and self.fault is None else None

    def is_unconstrained(self, row: SamplerRow) -> bool:
        """Whether any token may come next, without a mask."""
        return self._state_at(row)._free_mask(row) == b"" and self.fault is None

    def forced_tokens(self, row: SamplerRow) -> Sequence[int]:
        """Tokens that spell what must come next as the model was taught to spell it; none where that is open."""
        if not self._grammar.forces or self.fault is not None:
            return []
        started, begun = time.perf_counter(), time.thread_time()
        matcher = self._state_at(row)._matcher
        tokens = [] if matcher.is_error() or matcher.is_stopped() else matcher.compute_ff_tokens()
        if time.thread_time() - begun > FORCED_TIME:
            self._grammar.forces = False
        self.seconds += time.perf_counter() - started
        return tokens

    def count_accepted(self, row: SamplerRow, tokens: Sequence[int]) -> int:
        """How many of ``tokens`` may come next, one after another."""
        return self._state_at(row)._count_allowed(tokens)

    def _count_allowed(self, tokens: Sequence[int]) -> int:
        """How many of ``tokens`` the grammar goes on with."""
        if self._matcher.is_error() or self._matcher.is_stopped():
            return 0
        # One that the tokenizer has not would be a fault of the matcher.
        num_tokens = self._grammar.num_tokens
        return self._matcher.validate_tokens(list(takewhile(lambda token: token < num_tokens, tokens)))

    def _copy(self) -> Self:
        made = super()._copy()
        made._matcher, made._since = self._matcher.deep_copy(), self._since.copy()
        return made

    def _consume_tokens(self, tokens: Sequence[int]) -> None:
        if tokens:
            self._matcher.consume_tokens(list(tokens))
            self._since += tokens

    def _begins_with(self, tokens: Sequence[int] = ()) -> bool:
        """Whether the grammar begins with ``tokens``; the state does not change where it does not."""
        # The newest lexer may be full as well, but one that is made for this is not: what fills it alone is too much.
        for _ in range(2):
            self._start, self._matcher = self._grammar.start, self._grammar.start_matcher()
            if self._matcher.try_consume_tokens(list(tokens)) == len(tokens):
                self._since = [*tokens]
                return True
            if not self._is_full() or not self._grammar.renew_lexer(self._start):
                break
        self._start, self._matcher, self._since = self._grammar.start, self._grammar.start_matcher(), []
        return False

    def _renew(self) -> bool:
        """Whether it goes on with another lexer, where its own is full."""
        return self._is_full() and self._grammar.renew_lexer(self._start) and self._begins_with(self._since)

    def _is_full(self) -> bool:
        return self._matcher.is_error() and LEXER_FULL in self._matcher.get_error()

    def _compute_mask(self, row: SamplerRow) -> tuple[bytes, str | None]:
        """What is allowed, and why nothing is."""
        mask = self._free_mask(row)
        return self._held_mask(row) if mask is None else (mask, None)

    def _free_mask(self, row: SamplerRow) -> bytes | None:
        """Return the mask where the grammar does not apply, empty if every token is allowed; None where it applies."""
        return None

    def _held_mask(self, row: SamplerRow) -> tuple[bytes, str | None]:
        """Tokens that the grammar allows, and why it allows none."""
        matcher = self._matcher
        mask = b"" if matcher.is_error() else matcher.compute_bitmask()
        if matcher.is_error():
            return b"", shorten_reason(matcher.get_error())
        if matcher.is_stopped() and not any(mask):
            return b"", "it allows no token"
        mask = self._grammar.bound_numbers(mask, self._since, matcher)
        if len(row.output) < row.params.min_tokens or row.params.ignore_eos:
            mask = without_ends(mask, row)
        return mask, None


def shorten_reason(message: str) -> str:
    """llguidance's own words, without what they quote of the whole grammar."""
    text = message.replace("<non-verbose/>", "").strip()
    if TOO_WIDE.search(text):
        text = f"too much is allowed at one place, such as an object's names where hundreds are optional ({text})"
    return text if len(text) <= MAX_REASON else text[:MAX_REASON] + "..."
