"""A request in three numbers: tokens known, tokens computed, tokens that came from the cache."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from paternoster_contract.access.identity import Lane
from paternoster_contract.request_phases import WaitReason
from paternoster_engine.core.block_table import BlockTable
from paternoster_engine.core.drafting.draft_state import DraftState
from paternoster_engine.core.matching import Matcher
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams


class RequestStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class FinishReason(StrEnum):
    """Every request ends with exactly one of these."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    TIMEOUT = "timeout"
    """Its deadline passed before its first token, or while it waited after a preemption."""


class TokenLogprobs(NamedTuple):
    """How likely the model held a token, and which tokens it held most likely in its place.

    Natural logarithms of probabilities, by the model's own logits: before penalties, temperature and filters.
    """

    token: int
    logprob: float
    rank: int
    """1 for the most likely token of the vocabulary."""
    top: tuple[tuple[int, float], ...]
    """(token, logprob) of the most likely ones, best first, as many as the request asked for."""


Continuations = Sequence[tuple[int, float]]
"""(token, log probability) of the most likely next tokens of a sequence, best first."""


@dataclass(slots=True)
class Choices:
    """Progress of all sequences of one prompt together, for metrics."""

    n: int
    """Choices that the client asked for."""
    num_open: int
    """Sequences that have not ended."""
    most_output: int = 0
    """Tokens of the longest output that has ended."""
    whole: bool = True
    """None was cut short."""


class BranchSelector(Protocol):
    """Selects how a request goes on that runs as several sequences at once, such as a beam search."""

    @property
    def width(self) -> int:
        """How many sequences; at least 2."""
        ...

    @property
    def num_continuations(self) -> int:
        """How many most likely next tokens of each sequence it selects from."""
        ...

    @property
    def outcome(self) -> tuple[Sequence[int], FinishReason]:
        """The request's output and why it ends, after the end."""
        ...

    def select_branches(self, continuations: Sequence[Continuations]) -> Sequence[tuple[int, int]]:
        """Return for each of ``width`` sequences which one it goes on from and with which token; nothing at the end.

        Entry ``i`` of ``continuations`` is of sequence ``i``.
        """
        ...


class Branches(Protocol):
    """The sequences of one request with a :class:`BranchSelector`; see :mod:`core.branching`."""

    leader: "Request"
    """The request itself, which is the first sequence."""
    folded: bool
    """Only the leader can hold blocks: until its prompt is computed, and after a preemption."""
    ended: bool
    """No sequence goes on: ``outcome`` is the request's output and why it ends."""

    @property
    def sequences(self) -> Sequence["Request"]:
        """Sequences that can hold blocks."""
        ...

    @property
    def num_tokens(self) -> int:
        """Tokens known of each sequence."""
        ...

    def fold_branches(self) -> None:
        """Reduce the request to what all its sequences have in common, after a preemption took their blocks."""
        ...

    @property
    def outcome(self) -> tuple[Sequence[int], FinishReason]: ...

    def advance(self) -> int:
        """Make all sequences a token longer, or unfold, once the step has computed what was missing for it.

        Returns the number of new tokens; 0 while some sequences are not computed yet.
        """
        ...


@dataclass(slots=True, eq=False)
class Request:
    """One sequence from arrival to end: what was asked (``spec``), what it holds (``block_table``), how far it is.

    Only the scheduler changes a request; the results of a step arrive through :meth:`Scheduler.update`. Times are of
    the clock that stamps ``spec.arrival``.
    """

    spec: RequestSpec
    matcher: Matcher | None = None
    """Which tokens it may have; None for all."""
    branch_selector: BranchSelector | None = None
    """Selects how it goes on as several sequences at once; nothing is sampled for it then."""
    prefix_donor: "Request | None" = None
    """Another request with the same prompt, whose blocks it may begin with."""
    choices: Choices | None = None
    """Shared by all sequences of one prompt; None for a sequence that is the only one."""

    block_table: BlockTable = field(default_factory=BlockTable)
    num_prompt: int = field(init=False)

    output: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    """One for each token of ``output`` where ``params`` ask for it."""
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    """Entry ``i`` is of prompt token ``i + 1``; it comes with the step that computes token ``i``."""
    vector: Sequence[float] = ()
    """Result of a request for no tokens."""
    status: RequestStatus = RequestStatus.WAITING
    finish_reason: FinishReason | None = None
    corrupted: bool = False
    """It ended because the model gave NaN, or infinite logits, for it."""
    fault: str | None = None
    """Why no token can be chosen any more, apart from the matcher's own fault; None while some can."""

    num_computed: int = 0
    """Tokens whose keys and values are in the KV pool, or will be after the step under way."""
    num_cached: int = 0
    """Number of those found in the prefix cache, or in the blocks of the prefix donor, at the last admission."""
    num_found: int = 0
    """``num_cached`` of the first admission, before the request left blocks of its own in the cache."""
    num_pending: int = 0
    """Output tokens that steps under way sample: not known yet, but a later step is planned as if they were."""
    max_computed: int = 0
    """High-water mark of ``num_computed``: computing below it again is the cost of preemption."""
    num_preemptions: int = 0
    due: float = 0.0
    """Virtual time that orders prompts; see :mod:`core.admission.prompt_shares`."""
    num_charged: int = 0
    """Prompt tokens that its tenant was charged for."""
    drafting: DraftState | None = None
    """State of speculation; None before the first proposal."""
    branches: Branches | None = None
    """The sequences that it is one of, from when the scheduler adds a request with a branch selector."""
    continuations: Continuations = ()
    """Most likely next tokens of one of several sequences."""

    waited_for: WaitReason = WaitReason.STEP
    """Reason for which it waited when it was admitted first."""
    first_scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None

    def __post_init__(self) -> None:
        self.num_prompt = len(self.spec.prompt)

    @property
    def request_id(self) -> str:
        return self.spec.request_id

    @property
    def prompt(self) -> list[int]:
        return self.spec.prompt

    @property
    def params(self) -> SamplingParams:
        return self.spec.params

    @property
    def seed(self) -> int:
        return self.spec.seed

    @property
    def gives_way(self) -> bool:
        """Whether a lane comes before its own."""
        return self.spec.lane > Lane.ONLINE

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.spec.eos_token_ids

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: prompt plus output."""
        return self.num_prompt + len(self.output)

    @property
    def num_proposed(self) -> int:
        """None: proposals are in a batch, as rows beside the request's own."""
        return 0

    @property
    def num_uncomputed(self) -> int:
        return self.num_tokens - self.num_computed

    @property
    def num_expected(self) -> int:
        """Tokens known once the steps under way have ended, if none of them ends the request."""
        return self.num_prompt + len(self.output) + self.num_pending

    @property
    def num_reusable(self) -> int:
        """Leading tokens that need no pass once their keys and values are there; the last known one always does.

        A pass over token ``i`` also gives the log probability of token ``i + 1``, where the request needs it.
        """
        last = self.num_tokens - 1
        if self.params.prompt_logprobs is None or len(self.prompt_logprobs) == self.num_prompt - 1:
            return last
        return len(self.prompt_logprobs)

    @property
    def max_total_tokens(self) -> int:
        """Tokens at the longest this request can get."""
        return self.num_prompt + self.params.max_tokens

    @property
    def most_computed(self) -> int:
        """Number of those that go through the model: the last one sampled never does."""
        return self.num_prompt + max(0, self.params.max_tokens - 1)

    @property
    def prefilling(self) -> bool:
        """More than its last sampled token is left to compute."""
        return self.num_uncomputed > 1 or not (self.output or self.num_pending)

    @property
    def leader(self) -> "Request":
        """The request that this sequence belongs to: itself, unless the request has several."""
        return self if self.branches is None else self.branches.leader

    @property
    def sequences(self) -> Sequence["Request"]:
        """What runs for the request now: itself, or several."""
        return (self,) if self.branches is None else self.branches.sequences

    @property
    def width(self) -> int:
        """How many sequences it is, or will be once its prompt is computed."""
        return 1 if self.branch_selector is None else self.branch_selector.width

    @property
    def slots(self) -> int:
        """Slots under the live cap that it takes; a folded request takes those of all its sequences."""
        return self.width if self.branches is not None and self.branches.folded else 1

    @property
    def finished(self) -> bool:
        return self.status is RequestStatus.FINISHED

    @property
    def is_unsatisfiable(self) -> bool:
        """No token can be chosen for it any more."""
        return self.fault is not None or (self.matcher is not None and self.matcher.fault is not None)

    def slice_tokens(self, start: int, stop: int) -> list[int]:
        """Tokens ``start`` up to ``stop`` of prompt and output taken as one sequence."""
        prompt, n = self.spec.prompt, self.num_prompt
        if stop <= n:
            return prompt[start:stop]
        if start >= n:
            return self.output[start - n : stop - n]
        return prompt[start:] + self.output[: stop - n]

    def ends_with(self, token: int, max_model_len: int) -> FinishReason | None:
        """Why ``token``, the newest of the output, is the last one; None if it is not."""
        params, eos_token_ids, num_output = self.spec.params, self.spec.eos_token_ids, len(self.output)
        if num_output >= params.min_tokens:
            if self.spec.ends_at_stop_tokens and token in params.stop_token_ids:
                return FinishReason.STOP
            if token in eos_token_ids and not params.ignore_eos:
                return FinishReason.STOP
        if self.matcher is not None and token in eos_token_ids:
            # What it must be is complete: nothing could follow.
            return FinishReason.STOP
        if num_output >= params.max_tokens or self.num_prompt + num_output >= max_model_len:
            return FinishReason.LENGTH
        return None

    def ends_with_pending(self, max_model_len: int) -> bool:
        """Whether the token that a step under way samples ends the request by its length, whatever it is."""
        num_output = len(self.output) + self.num_pending
        return num_output >= self.params.max_tokens or self.num_expected >= max_model_len

    def check_invariants(self) -> None:
        """Raise ``AssertionError`` unless a request that runs or waits holds just what that allows."""
        table = self.block_table
        if self.status is RequestStatus.RUNNING:
            assert 0 <= self.num_cached <= self.num_computed <= self.num_expected
            assert self.num_computed <= table.num_writable
            assert not table.host_block_ids
            return
        assert self.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        assert self.num_computed == 0
        assert not table.block_ids
        assert table.claimed_key is None
        assert self.branches is None or (self.leader is self and self.branches.folded)
        assert bool(table.host_block_ids) == (table.num_swapped > 0)
