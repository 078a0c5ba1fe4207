"""vLLM's ``thinking_token_budget``: after so many tokens of thinking the mark that ends it is all that may come."""

from collections.abc import Sequence
from copy import copy
from typing import Self

from paternoster_engine.core.matching import Matcher, Row
from paternoster_engine.sampling.grammars.free_text import Thought
from paternoster_engine.sampling.grammars.grammar import without_ends
from paternoster_engine.sampling.grammars.lazy import SeenTokens


class ThinkingBudget:
    """A :class:`Matcher` around another one, or none, that is asked for all but the end of a thought that is too long.

    Its state is a function of the tokens alone, as a grammar's is.
    """

    def __init__(
        self, limit: int, thought: Thought, end: Sequence[int], seen: SeenTokens, inner: Matcher | None = None
    ) -> None:
        """``limit``: tokens between the marks. ``end``: those that spell the mark at the thought's end, one or more."""
        self._limit = limit
        self._marks = thought.begin.encode(), thought.end.encode()
        self._end = end
        self._seen = seen
        self._inner = inner
        self._ahead: Self | None = None
        """As it is if what is proposed proves right."""
        self._num_taken = 0
        self._text = b""
        """Of the thought, or of what may begin one, so much as may hold a mark."""
        self._thinks: bool | None = True if thought.begun else None
        """None: not known yet."""
        self._count = 0
        """Tokens of the thought so far."""

    @property
    def fault(self) -> str | None:
        return None if self._inner is None else self._inner.fault

    @property
    def seconds(self) -> float:
        return 0.0 if self._inner is None else self._inner.seconds

    def allowed(self, row: Row) -> bytes | None:
        """See :class:`Matcher`."""
        mask: bytes | None = b"" if self._inner is None else self._inner.allowed(row)
        at = self._at(row)
        if mask is None:
            return None
        if at._due:
            return (1 << at._due[0]).to_bytes(len(mask or self._seen.all), "little")
        return without_ends(self._seen.all, row) if self._inner is None and _needs_more(row) else mask

    def rests(self, row: Row) -> bool:
        """See :class:`Matcher`."""
        if self._at(row)._due:
            return False
        return not _needs_more(row) if self._inner is None else self._inner.rests(row)

    def forced(self, row: Row) -> Sequence[int]:
        """See :class:`Matcher`."""
        inner = () if self._inner is None else self._inner.forced(row)
        return self._at(row)._due or inner

    def accepts(self, row: Row, tokens: Sequence[int]) -> int:
        """See :class:`Matcher`."""
        ahead = copy(self._at(row))
        count = 0
        for token in tokens:
            if ahead._due and token != ahead._due[0]:
                break
            ahead._take([token])
            count += 1
        return count if self._inner is None else min(count, self._inner.accepts(row, tokens[:count]))

    @property
    def _due(self) -> Sequence[int]:
        """What must come next; nothing while the thought may go on, and once it is over."""
        return self._end[self._count - self._limit :] if self._thinks and self._count >= self._limit else ()

    def _at(self, row: Row) -> Self:
        """As it is after the row's output; what is proposed is followed by a copy, which its rows share in order."""
        if not row.num_proposed:
            new = row.output[self._num_taken :]
            self._num_taken += len(new)
            self._take(new)
            return self
        if row.num_proposed == 1:
            self._ahead = copy(self)
            self._ahead._num_taken = len(row.output) - 1
        assert self._ahead is not None
        new = row.output[self._ahead._num_taken :]
        self._ahead._num_taken = len(row.output)
        self._ahead._take(new)
        return self._ahead

    def _take(self, tokens: Sequence[int]) -> None:
        begin, end = self._marks
        for token in tokens:
            if self._thinks is False:
                return
            self._text += self._seen.spelled(token) if token < self._seen.size else b""
            if self._thinks is None:
                begun = self._text.lstrip()
                if begun.startswith(begin):
                    self._thinks, self._text = True, begun[len(begin) :]
                elif not begin.startswith(begun):
                    self._thinks = False
                continue
            self._count += 1
            if end in self._text:
                self._thinks = False
            self._text = self._text[1 - len(end) :] if len(end) > 1 else b""


def _needs_more(row: Row) -> bool:
    """Whether no token may end the answer now: without a grammar, masks leave that to samplers only where none is."""
    return row.params.ignore_eos or len(row.output) < row.params.min_tokens
