"""State that follows one output token by token, and a copy of it that follows tokens which are only proposed."""

from collections.abc import Sequence
from copy import copy
from typing import Self

from paternoster_engine.core.matching import SamplerRow


class OutputFollower:
    """Base of matchers. The state is a function of the tokens alone, so preemption leaves it as it is."""

    def __init__(self) -> None:
        self._num_consumed = 0
        """Tokens of the output that the state includes."""
        self._ahead: Self | None = None
        """The state after proposed tokens, as if they were accepted."""

    def _consume_tokens(self, tokens: Sequence[int]) -> None:
        """Advance the state by ``tokens``."""
        raise NotImplementedError

    def _copy(self) -> Self:
        """Copy everything that :meth:`_consume_tokens` changes."""
        made = copy(self)
        made._ahead = None
        return made

    def _state_at(self, row: SamplerRow) -> Self:
        """Return the state after the row's output. Proposed rows share a copy of the request's state, in order."""
        state = self
        if row.num_proposed:
            if row.num_proposed == 1:
                self._ahead = self._copy()
                self._ahead._num_consumed = len(row.output) - 1
            assert self._ahead is not None
            state = self._ahead
        tokens = row.output[state._num_consumed :]
        state._num_consumed += len(tokens)
        state._consume_tokens(tokens)
        return state
