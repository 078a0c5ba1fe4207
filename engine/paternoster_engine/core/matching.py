"""What a token is chosen for, and what may forbid some of them there."""

from collections.abc import Sequence
from typing import Protocol

from paternoster_engine.core.sampling_params import SamplingParams


class Row(Protocol):
    """What samplers read of whoever gets a token: a request, or a :class:`ProposedRow` of one."""

    @property
    def prompt(self) -> list[int]: ...

    @property
    def output(self) -> list[int]: ...

    @property
    def num_tokens(self) -> int: ...

    @property
    def num_proposed(self) -> int:
        """Last tokens of ``output`` that are proposed and not known."""
        ...

    @property
    def params(self) -> SamplingParams: ...

    @property
    def seed(self) -> int: ...

    @property
    def eos_token_ids(self) -> tuple[int, ...]: ...

    @property
    def matcher(self) -> "Matcher | None": ...


class Matcher(Protocol):
    """Says of a request which tokens may come next, as a function of its output alone."""

    @property
    def fault(self) -> str | None:
        """Why no token can be chosen any more; None while some can."""
        ...

    @property
    def seconds(self) -> float:
        """Time that it took so far."""
        ...

    @property
    def most_proposed(self) -> int:
        """Tokens that may be proposed in a step, by the time that their masks take from everybody's."""
        ...

    def allowed(self, row: Row) -> bytes | None:
        """Bit ``t % 8`` of byte ``t // 8`` tells whether token ``t`` may come next; empty if any may, None if none can.

        That none can is a fault, unless it is only so if proposed tokens are right. A request is asked for first, then
        its rows in order. Tokens that end a request are allowed only where the output can end.
        """
        ...

    def rests(self, row: Row) -> bool:
        """Whether any token may come next, without :meth:`allowed`."""
        ...

    def forced(self, row: Row) -> Sequence[int]:
        """Tokens that spell what must come next as the model was taught to spell it; none where that is open."""
        ...

    def accepts(self, row: Row, tokens: Sequence[int]) -> int:
        """How many of ``tokens`` may come next, one after another."""
        ...


class ProposedRow:
    """A request as it is if the first tokens that are proposed for it prove right."""

    __slots__ = (
        "eos_token_ids",
        "matcher",
        "num_proposed",
        "num_tokens",
        "output",
        "params",
        "prompt",
        "seed",
        "stuck",
    )

    def __init__(self, request: Row, proposed: Sequence[int]) -> None:
        self.prompt = request.prompt
        self.output = [*request.output, *proposed]
        self.num_proposed = len(proposed)
        self.num_tokens = request.num_tokens + len(proposed)
        self.params = request.params
        self.seed = request.seed
        self.eos_token_ids = request.eos_token_ids
        self.matcher = request.matcher
        self.stuck = False
        """No token can be chosen here: whoever asks for one finds out when the proposals are known to be right."""
