"""The interfaces of samplers: the row that a token is sampled for, and the matcher that forbids some tokens."""

from collections.abc import Sequence
from typing import Protocol

from paternoster_engine.core.sampling_params import SamplingParams


class SamplerRow(Protocol):
    """What samplers read of a row: a request, or a :class:`ProposedRow` of one."""

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
    """Decides which tokens may come next in a request, as a function of its output alone."""

    @property
    def fault(self) -> str | None:
        """Why no token can be chosen any more; None while some can."""
        ...

    @property
    def seconds(self) -> float:
        """Time that it took so far."""
        ...

    @property
    def max_proposed(self) -> int:
        """Most tokens that may be proposed in a step: computing their masks delays the whole batch."""
        ...

    def allowed_mask(self, row: SamplerRow) -> bytes | None:
        """Bit ``t % 8`` of byte ``t // 8`` is 1 if token ``t`` may come next; empty if any may, None if none can.

        That none can is a fault, unless it depends on proposed tokens. The request's own row comes first, then its
        proposed rows in order. Tokens that end a request are allowed only where the output can end.
        """
        ...

    def is_unconstrained(self, row: SamplerRow) -> bool:
        """Whether any token may come next, without :meth:`allowed_mask`."""
        ...

    def forced_tokens(self, row: SamplerRow) -> Sequence[int]:
        """Tokens that spell what must come next as the model was taught to spell it; none where that is open."""
        ...

    def count_accepted(self, row: SamplerRow, tokens: Sequence[int]) -> int:
        """How many of ``tokens`` may come next, one after another."""
        ...


class ProposedRow:
    """A request with the first proposed tokens, as if they were accepted."""

    __slots__ = (
        "eos_token_ids",
        "is_unsatisfiable",
        "matcher",
        "num_proposed",
        "num_tokens",
        "output",
        "params",
        "prompt",
        "seed",
    )

    def __init__(self, request: SamplerRow, proposed: Sequence[int]) -> None:
        self.prompt = request.prompt
        self.output = [*request.output, *proposed]
        self.num_proposed = len(proposed)
        self.num_tokens = request.num_tokens + len(proposed)
        self.params = request.params
        self.seed = request.seed
        self.eos_token_ids = request.eos_token_ids
        self.matcher = request.matcher
        self.is_unsatisfiable = False
        """No fault is reported here: the request reports it once the proposed tokens are accepted."""
