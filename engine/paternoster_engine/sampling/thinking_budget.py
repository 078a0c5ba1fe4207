"""vLLM's ``thinking_token_budget``: after that many tokens of thinking its end delimiter is forced."""

from collections.abc import Sequence

from paternoster_engine.core.drafting.draft_state import MAX_PROPOSED
from paternoster_engine.core.matching import Matcher, SamplerRow
from paternoster_engine.sampling.allowed_tokens import without_ends
from paternoster_engine.sampling.grammars.free_text import Thought
from paternoster_engine.sampling.grammars.lazy import SeenTokens
from paternoster_engine.sampling.output_follower import OutputFollower


class ThinkingBudget(OutputFollower):
    """A :class:`Matcher` that forces the end of a thought at its limit, and else defers to an inner matcher, if any."""

    def __init__(
        self, limit: int, thought: Thought, end: Sequence[int], seen: SeenTokens, inner: Matcher | None = None
    ) -> None:
        """``limit``: tokens between the delimiters. ``end``: tokens that spell the delimiter at the thought's end."""
        super().__init__()
        self._limit = limit
        self._marks = thought.begin.encode(), thought.end.encode()
        self._end = end
        self._seen = seen
        self._inner = inner
        self._tail = b""
        """The last bytes of the output, in which a delimiter may begin."""
        self._thinks: bool | None = True if thought.begun else None
        """None until the output shows whether it begins with a thought."""
        self._count = 0
        """Tokens of the thought so far."""

    @property
    def fault(self) -> str | None:
        return None if self._inner is None else self._inner.fault

    @property
    def seconds(self) -> float:
        return 0.0 if self._inner is None else self._inner.seconds

    @property
    def max_proposed(self) -> int:
        """See :class:`Matcher`."""
        return MAX_PROPOSED if self._inner is None else self._inner.max_proposed

    def allowed_mask(self, row: SamplerRow) -> bytes | None:
        """See :class:`Matcher`."""
        mask: bytes | None = b"" if self._inner is None else self._inner.allowed_mask(row)
        state = self._state_at(row)
        if mask is None:
            return None
        if state._forced_end:
            return (1 << state._forced_end[0]).to_bytes(len(mask or self._seen.all), "little")
        return without_ends(self._seen.all, row) if self._inner is None and _may_not_end(row) else mask

    def is_unconstrained(self, row: SamplerRow) -> bool:
        """See :class:`Matcher`."""
        if self._state_at(row)._forced_end:
            return False
        return not _may_not_end(row) if self._inner is None else self._inner.is_unconstrained(row)

    def forced_tokens(self, row: SamplerRow) -> Sequence[int]:
        """See :class:`Matcher`."""
        inner = () if self._inner is None else self._inner.forced_tokens(row)
        return self._state_at(row)._forced_end or inner

    def count_accepted(self, row: SamplerRow, tokens: Sequence[int]) -> int:
        """See :class:`Matcher`."""
        ahead = self._state_at(row)._copy()
        count = 0
        for token in tokens:
            if ahead._forced_end and token != ahead._forced_end[0]:
                break
            ahead._consume_tokens([token])
            count += 1
        return count if self._inner is None else min(count, self._inner.count_accepted(row, tokens[:count]))

    @property
    def _forced_end(self) -> Sequence[int]:
        """The tokens that must come next; empty while the thought is within its limit, and once it is over."""
        return self._end[self._count - self._limit :] if self._thinks and self._count >= self._limit else ()

    def _consume_tokens(self, tokens: Sequence[int]) -> None:
        begin, end = self._marks
        for token in tokens:
            if self._thinks is False:
                return
            self._tail += self._seen.spelled(token) if token < self._seen.size else b""
            if self._thinks is None:
                begun = self._tail.lstrip()
                if begun.startswith(begin):
                    self._thinks, self._tail = True, begun[len(begin) :]
                elif not begin.startswith(begun):
                    self._thinks = False
                continue
            self._count += 1
            if end in self._tail:
                self._thinks = False
            self._tail = self._tail[1 - len(end) :] if len(end) > 1 else b""


def _may_not_end(row: SamplerRow) -> bool:
    """Whether no token may end the answer yet. Where a request has a matcher, samplers leave that to its masks."""
    return row.params.ignore_eos or len(row.output) < row.params.min_tokens
