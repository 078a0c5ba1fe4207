"""What the scheduler is built with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paternoster_contract.scheduling import (
    AdmissionName,
    ModeName,
    OrderName,
    PreemptionName,
    VictimName,
    check_scheduling,
    check_weights,
)


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """A tenant's weight and quotas, as its requests bring them."""

    weight: float = 1.0
    """Share of the engine relative to other tenants."""
    max_queued: int = 0
    """Waiting requests above which new ones are refused; 0 is no limit."""
    max_running: int = 0
    """Sequences that run at once, above which others wait; 0 is no limit."""
    tokens_per_second: float = 0.0
    """Prompt and output tokens; 0 is no limit."""
    token_burst: float = 0.0
    """Tokens it may use at once after it was quiet; 0 is ten seconds' worth."""


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Fixed for the life of a scheduler; only the live cap and the token budget move, below what is said here."""

    max_num_seqs: int
    """Capacity: sequences that can ever run at once."""
    max_batched_tokens: int
    """Capacity: tokens that a step can ever hold."""
    max_model_len: int
    """Longest prompt plus output, tokens."""
    block_size: int
    """Tokens per KV block."""
    num_blocks: int
    """Blocks that can be handed out; the null block comes on top."""
    watermark_blocks: int = 0
    """Blocks an admission leaves free for those that run already."""
    max_queued_requests: int = 1024
    """Waiting requests above which new ones are refused."""
    prefix_cache: bool = True
    """Share blocks between requests with equal prefixes."""
    await_prefix: bool = True
    """Let a request wait while another one computes the block that it would compute next; needs the prefix cache."""

    mode: ModeName = "continuous"
    """continuous: admit at every step; static: only when nothing runs; dynamic: static, and a batch is put off."""
    batch_size: int = 0
    """dynamic: waiting requests that make a batch; 0 is ``max_num_seqs``."""
    batch_wait: float = 0.0
    """dynamic: seconds of waiting after which a batch is made of those there are."""
    overlap: bool = False
    """Plan each step while the one before runs: a sequence is scheduled past a token that is not known yet."""
    prefill_first: bool = False
    """A step computes either prompts or, when there are none, single tokens; else it mixes them to fill the budget."""
    admission: AdmissionName = "greedy"
    victim: VictimName = "least-computed"
    order: OrderName = "fcfs"
    priority_aging: float = 0.0
    """order priority: seconds of waiting that are worth one class; 0 is no aging."""
    pause_lower_classes: bool = False
    """order priority: a step that computes prompts of a class computes nothing of the classes below it."""
    reserved_slots: int = 0
    """Slots under the live cap that only requests with a priority below 0 get; one is always left for the others."""
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    """order fair-share: shares of tenants relative to others; 1 for those not named."""

    preemption: PreemptionName = "recompute"
    """What happens to a victim's blocks: dropped, copied to host memory, or whichever was measured to be cheaper."""
    host_blocks: int = 0
    """Blocks of host memory to swap to; a victim that finds no room there is recomputed."""

    max_queued_per_tenant: int = 0
    """Waiting requests of one tenant above which its new ones are refused; 0 is no limit."""
    max_running_per_tenant: int = 0
    """Sequences of one tenant that run at once, above which its others wait; 0 is no limit."""
    tenant_tokens_per_second: float = 0.0
    """Prompt and output tokens a tenant may use per second; 0 is no limit."""
    tenant_token_burst: float = 0.0
    """Tokens a tenant that was quiet may use at once; 0 is ten seconds' worth."""

    force_preempt_every: int = 0
    """Preempt one running request every so many steps; 0 is never. For tests and chaos runs."""

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_batched_tokens", "max_model_len", "block_size", "num_blocks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: must be at least 1")
        for name in (
            "watermark_blocks",
            "max_queued_requests",
            "force_preempt_every",
            "batch_size",
            "batch_wait",
            "priority_aging",
            "reserved_slots",
            "host_blocks",
            "max_queued_per_tenant",
            "max_running_per_tenant",
            "tenant_tokens_per_second",
            "tenant_token_burst",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: must be at least 0")
        check_scheduling(self)
        check_weights("tenant_weights", self.tenant_weights)
        if self.preemption != "recompute" and self.host_blocks == 0:
            raise ValueError(f"host_blocks is 0: must be at least 1 with preemption {self.preemption!r}")

    @property
    def uses_priority(self) -> bool:
        """Whether a request's ``priority`` changes anything."""
        return self.order == "priority" or self.victim == "priority" or self.reserved_slots > 0

    @property
    def uses_tenants(self) -> bool:
        """Whether a request's ``tenant`` changes anything."""
        limits = self.max_queued_per_tenant, self.max_running_per_tenant, self.tenant_tokens_per_second
        return self.order == "fair-share" or any(limits)
