"""What the scheduler is built with."""

from dataclasses import dataclass
from typing import Self

from pydantic import Field, field_validator, model_validator

from paternoster_contract.settings.memory import KVCacheSettings
from paternoster_contract.settings.scheduling import OrderName, SchedulingSettings
from paternoster_contract.settings.tenants import TenantSettings


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


class SchedulerConfig(SchedulingSettings, KVCacheSettings, TenantSettings):
    """The settings of an engine that the scheduler goes by, and what is resolved when the engine starts.

    Fixed for the life of a scheduler; only the live cap and the token budget move, below the capacity set here.
    """

    order: OrderName = Field(default="fcfs", description="who is next")
    max_batched_tokens: int = Field(ge=1, description="capacity: tokens that a step can ever hold")
    max_model_len: int = Field(ge=1, description="longest prompt plus output, tokens")
    num_blocks: int = Field(ge=1, description="blocks that can be handed out; the null block comes on top")
    windows: tuple[int | None, ...] = Field(
        default=(None,),
        min_length=1,
        description="of each group of the model's layers, how many tokens a token sees with itself; None for all",
    )
    watermark_blocks: int = Field(
        default=0, ge=0, description="blocks an admission leaves free for those that run already"
    )
    whole_prompts: bool = Field(
        default=False,
        description="compute each prompt in one step and nothing after it, as models do that read a text in both "
        "directions; the token budget gives way to a single prompt that is longer",
    )
    overlap: bool = Field(
        default=False,
        description="plan each step while the one before runs: a sequence is scheduled past a token that is not known "
        "yet",
    )
    host_blocks: int = Field(
        default=0,
        ge=0,
        description="blocks of host memory to swap to; a victim that finds no room there is recomputed",
    )
    force_preempt_every: int = Field(
        default=0,
        ge=0,
        description="preempt one running request every so many steps; 0 for never. For tests and chaos runs",
    )

    @field_validator("windows")
    @classmethod
    def _check_windows(cls, windows: tuple[int | None, ...]) -> tuple[int | None, ...]:
        if any(window < 1 for window in windows if window is not None):
            raise ValueError(f"windows is {windows}: each must be None or at least 1")
        return windows

    @model_validator(mode="after")
    def _check_whole_prompts(self) -> Self:
        if not self.whole_prompts:
            return self
        if self.max_batched_tokens < self.max_model_len:
            raise ValueError(
                f"max_batched_tokens is {self.max_batched_tokens}: must be at least {self.max_model_len}, the longest "
                "prompt, where each is computed in one step"
            )
        if self.overlap or self.prefix_cache:
            raise ValueError("whole_prompts: leaves nothing to overlap or to reuse")
        return self

    @model_validator(mode="after")
    def _check_host_blocks(self) -> Self:
        if self.preemption != "recompute" and self.host_blocks == 0:
            raise ValueError(f"host_blocks is 0: must be at least 1 with preemption {self.preemption!r}")
        return self

    @property
    def uses_priority(self) -> bool:
        """Whether a request's ``priority`` changes anything."""
        return self.order == "priority" or self.reserved_slots > 0

    @property
    def uses_tenants(self) -> bool:
        """Whether a request's ``tenant`` changes anything."""
        limits = self.max_queued_per_tenant, self.max_running_per_tenant, self.tenant_tokens_per_second
        return self.order == "fair-share" or any(limits)

    def most_queued(self, limits: TenantLimits | None) -> int:
        """Sequences of one tenant that may wait at once; ``limits``: its own, where it has some."""
        of_tenant = self.max_queued_per_tenant if limits is None else limits.max_queued
        return min(self.max_queued_requests, of_tenant or self.max_queued_requests)
