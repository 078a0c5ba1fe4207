"""A request, told by three numbers: tokens known, tokens computed, tokens that came from the cache."""

from dataclasses import dataclass, field
from enum import StrEnum

from paternoster_engine.core.logprobs import TokenLogprobs
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


@dataclass(slots=True, eq=False)
class Request:
    """One sequence from arrival to end.

    The scheduler owns ``status``, ``num_computed``, ``num_cached``, the block tables and the counters; tokens are
    appended to ``output`` by :meth:`Scheduler.update`. Times are whatever clock the caller stamps them with.
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
    deadline: float | None = None
    """When it is no longer worth a prefill, on the clock of ``arrival``."""

    output: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    """One for each token of ``output`` where ``params`` ask for it; the runner adds it when it samples the token."""
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    """Entry ``i`` is of prompt token ``i + 1``; the runner adds it when it computes token ``i``."""
    status: RequestStatus = RequestStatus.WAITING
    finish_reason: FinishReason | None = None
    num_computed: int = 0
    """Tokens whose keys and values are in the KV pool (or being computed by the step under way)."""
    num_cached: int = 0
    """Of those, tokens found in the prefix cache at the last admission."""
    block_ids: list[int] = field(default_factory=list)
    """Block table: block ``i`` holds tokens ``i*block_size`` to ``(i+1)*block_size - 1``."""
    block_keys: list[bytes] = field(default_factory=list)
    """Prefix-cache keys of the first full blocks, made when first asked for."""
    num_kept_blocks: int = 0
    """Leading blocks that the prefix cache has been told of."""
    claimed_key: bytes | None = None
    """Prefix-cache key of the block it is computing now, for others to wait for."""
    host_block_ids: list[int] = field(default_factory=list)
    """Where in host memory its blocks are while it is swapped out."""
    num_swapped: int = 0
    """Tokens whose keys and values are in those."""
    num_preemptions: int = 0
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
    def num_uncomputed(self) -> int:
        return self.num_tokens - self.num_computed

    @property
    def num_reusable(self) -> int:
        """Leading tokens that need no pass once their keys and values are there; the last known one always does.

        A pass over token ``i`` also tells the log probability of token ``i + 1``, where that is asked for.
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
    def prefilling(self) -> bool:
        """More than its last sampled token is left to compute."""
        return self.num_uncomputed > 1 or not self.output

    @property
    def finished(self) -> bool:
        return self.status is RequestStatus.FINISHED

    def tokens(self, start: int, stop: int) -> list[int]:
        """Tokens ``start`` up to ``stop`` of prompt and output taken as one sequence."""
        n = len(self.prompt)
        if stop <= n:
            return self.prompt[start:stop]
        if start >= n:
            return self.output[start - n : stop - n]
        return self.prompt[start:] + self.output[: stop - n]
