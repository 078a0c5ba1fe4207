"""A compiled grammar, and its state after the tokens of one sequence."""

import time

from llguidance import LLMatcher, LLTokenizer

from paternoster_engine.core.request import Request
from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.limits import MASK_TIME, parser_limits

TOO_SLOW = f"one of its masks takes more than {MASK_TIME:g} s of a processor: it forces too long a text"
MAX_REASON = 300
"""Most characters of llguidance's own words that a client is told."""


class Grammar:
    """Shared by all sequences that must be of it."""

    def __init__(self, tokenizer: LLTokenizer, text: str) -> None:
        """Compile ``text``, a grammar of llguidance, without the interpreter's lock; raises :class:`GrammarError`."""
        self._start = LLMatcher(tokenizer, text, log_level=0, limits=parser_limits())
        if self._start.is_error():
            raise GrammarError(reason(self._start.get_error()))
        self.too_slow = False
        """One of its masks has held up everybody: it gets no other."""
        warnings = self._start.get_grammar_warnings()
        if warnings:
            # What llguidance only warns of it does not enforce.
            raise GrammarError(reason(warnings[0]))

    def check(self) -> None:
        """Raise :class:`GrammarError` if there is no answer that it allows, or its first mask reaches a limit."""
        start, begun = self._start.deep_copy(), time.thread_time()
        mask = start.compute_bitmask()
        if time.thread_time() - begun > MASK_TIME:
            raise GrammarError(TOO_SLOW)
        if not any(mask) or start.is_error():
            raise GrammarError(f"it allows no answer: {reason(start.get_error())}")

    def matcher(self) -> "Matcher":
        """At the beginning of an answer; some microseconds."""
        return Matcher(self, self._start.deep_copy())


class Matcher:
    """Follows one output. Its state is a function of the tokens alone: preemption leaves it as it is."""

    def __init__(self, grammar: Grammar, matcher: LLMatcher) -> None:
        self._grammar = grammar
        self._matcher = matcher
        self._num_taken = 0
        self.fault: str | None = None
        """Why no token can be chosen any more; None while some can."""
        self.seconds = 0.0
        """Time that its masks took."""

    def allowed(self, request: Request) -> bytes | None:
        """Bit ``t % 8`` of byte ``t // 8`` tells whether token ``t`` may come next; None, and a fault, if none can.

        Tokens that end an answer are allowed where the grammar can end: with ``ignore_eos``, and before ``min_tokens``,
        only where it must.
        """
        started, begun = time.perf_counter(), time.thread_time()
        new = request.output[self._num_taken :]
        self._num_taken += len(new)
        if new:
            self._matcher.consume_tokens(new)
        mask = b"" if self._matcher.is_error() else self._matcher.compute_bitmask()
        if self._matcher.is_error():
            self.fault = reason(self._matcher.get_error())
        elif self._matcher.is_stopped() and not any(mask):
            self.fault = "it allows no token"
        elif len(request.output) < request.params.min_tokens or request.params.ignore_eos:
            mask = _without_ends(mask, request)
        if time.thread_time() - begun > MASK_TIME:
            self._grammar.too_slow = True
        if self._grammar.too_slow:
            self.fault = TOO_SLOW
        self.seconds += time.perf_counter() - started
        return mask if self.fault is None else None


def _without_ends(mask: bytes, request: Request) -> bytes:
    """``mask`` without tokens that end the request, unless no other is left."""
    ends = set(request.eos_token_ids)
    if len(request.output) < request.params.min_tokens:
        ends.update(request.params.stop_token_ids)
    others = bytearray(mask)
    for token in ends:
        others[token // 8] &= ~(1 << token % 8) & 0xFF
    return bytes(others) if any(others) else mask


def reason(said: str) -> str:
    """llguidance's own words, without what they quote of the whole grammar."""
    text = said.replace("<non-verbose/>", "").strip()
    return text if len(text) <= MAX_REASON else text[:MAX_REASON] + "..."
