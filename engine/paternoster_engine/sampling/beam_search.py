"""Beam search as a function of the model's log probabilities: which beams continue, which are answers, when it stops.

The rules are those of transformers' ``generate(num_beams=width)``, so that one can be checked against the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from paternoster_engine.core.request import Continuations, FinishReason, TokenLogprobs
from paternoster_engine.core.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class BeamParams:
    """How beam search goes; meanings as in transformers and in vLLM's extensions of the OpenAI API."""

    width: int
    """Beams that are followed, and answers that are found; at least 2."""
    length_penalty: float = 1.0
    """Answers are ranked by their log probability over their length to this power: above 0 favours long ones."""
    early_stopping: bool | Literal["never"] = False
    """When the answers found are enough: as soon as there are ``width``; False: when the best beam, at its present
    length, would not be better; "never": when it could not become better at any length.
    """


class Beam(NamedTuple):
    """A beginning of an answer."""

    tokens: tuple[int, ...] = ()
    score: float = 0.0
    """Log probability of all its tokens together."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One for each token where the request asks for them."""


class Hypothesis(NamedTuple):
    """A whole answer."""

    tokens: tuple[int, ...]
    score: float
    """Log probability of all its tokens together, over their number to the power of the length penalty."""
    logprobs: tuple[TokenLogprobs, ...]
    finish_reason: FinishReason


class _Continuation(NamedTuple):
    score: float
    parent: int
    place: int
    """Among the continuations of its parent."""
    token: int


class BeamSearch:
    """One search, which selects how its request branches (:class:`BranchSelector`).

    ``live`` beams are of one length; ``finished`` are the best answers so far, best first.
    """

    def __init__(self, beam: BeamParams, params: SamplingParams, eos_token_ids: Sequence[int]) -> None:
        self._beam = beam
        self._params = params
        self._ends = frozenset(params.stop_token_ids) | frozenset(() if params.ignore_eos else eos_token_ids)
        self._forbidden = frozenset(params.stop_token_ids) | frozenset(eos_token_ids)
        """Tokens that an answer shorter than ``min_tokens`` has none of."""
        self.live: list[Beam] = [Beam()]
        self.finished: list[Hypothesis] = []
        self.done = False

    @property
    def num_continuations(self) -> int:
        """How many of each beam's continuations must be known.

        Enough to continue with one beam alone if all that may end do so, besides those that are not allowed; and all
        whose logprobs the request asks for.
        """
        return max(self._beam.width + len(self._ends) + len(self._forbidden), self._params.logprobs or 0)

    @property
    def num_tokens(self) -> int:
        """Length of the live beams."""
        return len(self.live[0].tokens)

    @property
    def width(self) -> int:
        return self._beam.width

    @property
    def outcome(self) -> tuple[Sequence[int], FinishReason]:
        """Tokens of the best answer and why it ends, once the search is done."""
        best = self.finished[0]
        return best.tokens, best.finish_reason

    def select_branches(self, continuations: Sequence[Continuations]) -> list[tuple[int, int]]:
        """Make every beam a token longer; entry ``i`` of ``continuations`` is of ``live[i]``.

        Returns for each new beam which one it continues and its new token; nothing once the search is done.
        """
        length = self.num_tokens + 1
        last = length >= self._params.max_tokens
        going_on: list[_Continuation] = []
        for rank, best in enumerate(self._best_continuations(continuations)):
            ends = best.token in self._ends
            if not ends and not last:
                going_on.append(best)
            elif rank < self._beam.width:
                reason = FinishReason.STOP if ends else FinishReason.LENGTH
                beam = self._extend_beam(best, continuations)
                self.finished.append(
                    Hypothesis(beam.tokens, self._penalize_length(beam.score, length), beam.logprobs, reason)
                )
        # Of equals the first one found stays ahead.
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)
        del self.finished[self._beam.width :]
        going_on = going_on[: self._beam.width]
        self.done = last or self._cannot_improve(going_on[0].score, length)
        if self.done:
            return []
        self.live = [self._extend_beam(best, continuations) for best in going_on]
        return [(best.parent, best.token) for best in going_on]

    @property
    def _num_kept(self) -> int:
        return max(2, 1 + len(self._ends)) * self._beam.width

    def _best_continuations(self, continuations: Sequence[Continuations]) -> list[_Continuation]:
        """The best over all beams, best first."""
        short = self.num_tokens < self._params.min_tokens
        every = [
            _Continuation(beam.score + logprob, parent, place, token)
            for parent, (beam, following) in enumerate(zip(self.live, continuations, strict=True))
            for place, (token, logprob) in enumerate(following)
            if not (short and token in self._forbidden)
        ]
        every.sort(key=lambda best: -best.score)
        return every[: self._num_kept]

    def _extend_beam(self, best: _Continuation, continuations: Sequence[Continuations]) -> Beam:
        beam = self.live[best.parent]
        logprobs = beam.logprobs
        if self._params.logprobs is not None:
            logprobs = (*logprobs, _token_logprobs(continuations[best.parent], best.place, self._params.logprobs))
        return Beam((*beam.tokens, best.token), best.score, logprobs)

    def _cannot_improve(self, best: float, length: int) -> bool:
        """Whether all answers are there, and none of them would give way to what the ``best`` live beam can become."""
        if len(self.finished) < self._beam.width:
            return False
        if self._beam.early_stopping is True:
            return True
        if self._beam.early_stopping == "never" and self._beam.length_penalty > 0:
            length = self._params.max_tokens
        return self._penalize_length(best, length) <= self.finished[-1].score

    def _penalize_length(self, score: float, length: int) -> float:
        penalty: float = length**self._beam.length_penalty
        return score / penalty


def _token_logprobs(following: Continuations, place: int, num_top: int) -> TokenLogprobs:
    token, logprob = following[place]
    rank = 1 + sum(other > logprob for _, other in following[:place])
    return TokenLogprobs(token, logprob, rank, tuple(following[:num_top]))
