"""A request in three numbers: tokens known, tokens computed, tokens that came from the cache."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, Protocol

from paternoster_engine.core.config import TenantLimits
from paternoster_engine.core.drafting import Drafting
from paternoster_engine.core.matching import Matcher
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
    """Its deadline passed before it had a token, or while it waited to go on after a preemption."""


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
    """What metrics know of all sequences of one prompt together."""

    n: int
    """Choices that the client asked for."""
    num_open: int
    """Sequences that have not ended."""
    most_output: int = 0
    """Tokens of the longest output that has ended."""
    whole: bool = True
    """None was cut short."""


class Branching(Protocol):
    """Chooses how a request goes on that is followed along several sequences at once."""

    @property
    def width(self) -> int:
        """How many sequences; at least 2."""
        ...

    @property
    def num_continuations(self) -> int:
        """How many most likely next tokens of each sequence it chooses from."""
        ...

    @property
    def outcome(self) -> tuple[Sequence[int], FinishReason]:
        """The request's output and why it ends, after the end."""
        ...

    def advance(self, continuations: Sequence[Continuations]) -> Sequence[tuple[int, int]]:
        """The sequence and token from which each of ``width`` sequences continues; empty at the end.

        Entry ``i`` of the argument is of sequence ``i``.
        """
        ...


@dataclass(slots=True, eq=False)
class Request:
    """One sequence from arrival to end.

    Only the scheduler changes one; what a step gave comes in by :meth:`Scheduler.update`. Times are
    of whatever clock the caller stamps them with.
    """

    request_id: str
    prompt: list[int]
    params: SamplingParams
    arrival: float = 0.0
    eos_token_ids: tuple[int, ...] = ()
    seed: int = 0
    """Key of the stateless sampler: ``params.seed``, or one drawn at arrival."""
    priority: int = 0
    """Class: lower is served first, as in vLLM. Below 0 may use the reserved slots."""
    tenant: str = ""
    """Whom fair shares and quotas count the request for."""
    limits: TenantLimits | None = None
    """The tenant's own weight and quotas; None for those that the engine has for everybody."""
    cache_scope: bytes = b""
    """Prefix-cache blocks are found by requests of the same scope alone; empty, or a digest of 16 bytes."""
    deadline: float | None = None
    """When it is no longer worth a prefill, on the clock of ``arrival``."""
    second_text: int | None = None
    """Where the second of two texts begins in a prompt that compares them; None for one text."""
    twin: "Request | None" = None
    """Another request with the same prompt, whose blocks it may begin with."""
    choices: Choices | None = None
    """Shared by all sequences of one prompt; None for a sequence that is the only one."""

    output: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    """One for each token of ``output`` where ``params`` ask for it."""
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    """Entry ``i`` is of prompt token ``i + 1``; it comes with the step that computes token ``i``."""
    vector: Sequence[float] = ()
    """What became of a request for no tokens."""
    status: RequestStatus = RequestStatus.WAITING
    finish_reason: FinishReason | None = None
    num_computed: int = 0
    """Tokens whose keys and values are in the KV pool (or being computed by the step under way)."""
    num_cached: int = 0
    """Of those, tokens found in the prefix cache, or in the blocks of its twin, at the last admission."""
    num_found: int = 0
    """The same at its first admission, which no work of its own could have left there."""
    block_ids: list[int] = field(default_factory=list)
    """Block table: row ``i`` holds tokens ``i*block_size`` to ``(i+1)*block_size - 1``, in a block for each group of
    layers; see :mod:`core.kv_groups`. 0 where a window has let the block go, or has not come to it yet.
    """
    room: int = 0
    """Tokens up to which the table has all the blocks that are to be written to."""
    block_keys: list[bytes] = field(default_factory=list)
    """Prefix-cache keys of the first full rows, made when first asked for."""
    num_kept_rows: int = 0
    """Leading rows that are known to be computed: windows have moved past them, and the prefix cache knows them."""
    claimed_key: bytes | None = None
    """Prefix-cache key of the block it is computing now, for others to wait for."""
    host_block_ids: dict[int, int] = field(default_factory=dict)
    """Entry of the block table -> where in host memory that block is while the request is swapped out."""
    num_swapped: int = 0
    """Tokens whose keys and values are in those."""
    branching: Branching | None = None
    """How it goes on where it is followed along several sequences at once; nothing is sampled for it then."""
    corrupted: bool = False
    """It ended because the model gave NaN, or infinite logits, for it."""
    fault: str | None = None
    """Why no token can be chosen any more, apart from the matcher's own fault; None while some can."""
    matcher: Matcher | None = None
    """Which tokens it may have, where not every one will do."""
    drafting: Drafting | None = None
    """What is known of tokens that are proposed for it, once some may be."""
    group: "SequenceGroup | None" = None
    """The sequences that it is one of, once the scheduler has it."""
    continuations: Continuations = ()
    """For a sequence of a group: its most likely next tokens."""
    shares_tail: bool = False
    """Its last block may be another sequence's, too: whoever writes to it first takes a copy."""
    num_pending: int = 0
    """Output tokens that steps under way sample: not known yet, but a later step is planned as if they were."""
    num_preemptions: int = 0
    due: float = 0.0
    """Place of its prompt among those that run; see :mod:`core.admission.prompt_shares`."""
    num_charged: int = 0
    """Prompt tokens that its tenant was charged for."""
    max_computed: int = 0
    """High-water mark of ``num_computed``: computing below it again is the cost of preemption."""
    first_scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None

    @property
    def num_prompt(self) -> int:
        return len(self.prompt)

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: prompt plus output."""
        return len(self.prompt) + len(self.output)

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
        return len(self.prompt) + len(self.output) + self.num_pending

    @property
    def num_reusable(self) -> int:
        """Leading tokens that need no pass once their keys and values are there; the last known one always does.

        A pass over token ``i`` also gives the log probability of token ``i + 1``, where that is asked for.
        """
        last = self.num_tokens - 1
        if self.params.prompt_logprobs is None or len(self.prompt_logprobs) == self.num_prompt - 1:
            return last
        return len(self.prompt_logprobs)

    @property
    def max_total_tokens(self) -> int:
        """Tokens at the longest this request can get."""
        return len(self.prompt) + self.params.max_tokens

    @property
    def most_computed(self) -> int:
        """Of those, tokens that go through the model: the last one sampled never does."""
        return len(self.prompt) + max(0, self.params.max_tokens - 1)

    @property
    def prefilling(self) -> bool:
        """More than its last sampled token is left to compute."""
        return self.num_uncomputed > 1 or not (self.output or self.num_pending)

    @property
    def leader(self) -> "Request":
        """The request that stands for all sequences of a group; itself when it is of none."""
        return self if self.group is None else self.group.leader

    @property
    def sequences(self) -> Sequence["Request"]:
        """What runs in its name now: itself, or the sequences of its group."""
        return (self,) if self.group is None else self.group.sequences

    @property
    def width(self) -> int:
        """How many sequences it is, or will be once its prompt is computed."""
        return 1 if self.branching is None else self.branching.width

    @property
    def slots(self) -> int:
        """Slots under the live cap that it takes; a group takes those of its sequences before they run."""
        return self.width if self.group is not None and self.group.folded else 1

    @property
    def finished(self) -> bool:
        return self.status is RequestStatus.FINISHED

    @property
    def stuck(self) -> bool:
        """No token can be chosen for it any more."""
        return self.fault is not None or (self.matcher is not None and self.matcher.fault is not None)

    def tokens(self, start: int, stop: int) -> list[int]:
        """Tokens ``start`` up to ``stop`` of prompt and output taken as one sequence."""
        n = len(self.prompt)
        if stop <= n:
            return self.prompt[start:stop]
        if start >= n:
            return self.output[start - n : stop - n]
        return self.prompt[start:] + self.output[: stop - n]

    def ends_with(self, token: int, max_model_len: int) -> FinishReason | None:
        """Why ``token``, the newest of the output, is the last one; None if it is not."""
        params = self.params
        if len(self.output) >= params.min_tokens:
            if token in params.stop_token_ids:
                return FinishReason.STOP
            if token in self.eos_token_ids and not params.ignore_eos:
                return FinishReason.STOP
        if self.matcher is not None and token in self.eos_token_ids:
            # What it must be is complete: nothing could follow.
            return FinishReason.STOP
        if len(self.output) >= params.max_tokens or self.num_tokens >= max_model_len:
            return FinishReason.LENGTH
        return None

    def ends_with_pending(self, max_model_len: int) -> bool:
        """Whether the token that a step under way samples ends the request by its length, whatever it is."""
        num_output = len(self.output) + self.num_pending
        return num_output >= self.params.max_tokens or self.num_expected >= max_model_len

    def check(self) -> None:
        """Raise ``AssertionError`` unless a request that runs or waits holds just what that allows."""
        if self.status is RequestStatus.RUNNING:
            assert 0 <= self.num_cached <= self.num_computed <= self.num_expected
            assert self.num_computed <= self.room
            assert not self.host_block_ids
            return
        assert self.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        assert self.num_computed == 0
        assert not self.block_ids
        assert self.claimed_key is None
        assert self.group is None or (self.group.leader is self and len(self.group.sequences) == 1)
        assert bool(self.host_block_ids) == (self.num_swapped > 0)


class SequenceGroup:
    """The sequences of one request: one while the prompt is computed, then as many as it branches into.

    The first is the request itself. It queues, and it is what the client, quotas and deadlines know of. A group is
    preempted as a whole: it is *folded* then, which leaves the request with what all sequences have in common.
    """

    def __init__(self, leader: Request, branching: Branching) -> None:
        self.leader = leader
        self.branching = branching
        self.folded = True
        """Only the leader can hold blocks."""
        self.ended = False
        """There is nothing left to branch into."""
        self.branches: list[list[int]] = [[]]
        """Output of each sequence, all of one length; they are kept while the group is folded."""
        others = replace(leader.params, prompt_logprobs=None)
        self.members = [leader]
        self.members += [
            Request(
                f"{leader.request_id}.{i}",
                leader.prompt,
                others,
                arrival=leader.arrival,
                priority=leader.priority,
                tenant=leader.tenant,
                limits=leader.limits,
                cache_scope=leader.cache_scope,
                branching=branching,
                status=RequestStatus.PREEMPTED,
            )
            for i in range(1, branching.width)
        ]
        for member in self.members:
            member.group = self

    @property
    def sequences(self) -> Sequence[Request]:
        """Members that can hold blocks: member ``i`` follows ``branches[i]``, the leader alone if folded."""
        return self.members[:1] if self.folded else self.members

    @property
    def num_tokens(self) -> int:
        """Tokens known of each sequence."""
        return self.leader.num_prompt + len(self.branches[0])

    def fold(self) -> None:
        """All blocks were taken away."""
        first, common = self.branches[0], 0
        while common < len(first) and len({branch[common] for branch in self.branches}) == 1:
            common += 1
        self.leader.output = first[:common]
        self.folded = True
