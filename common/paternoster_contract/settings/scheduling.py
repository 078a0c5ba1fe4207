"""Who runs when: what the scheduler goes by, and how much it may do at once."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from paternoster_contract.flags import Settings
from paternoster_contract.settings.removed import REMOVED_ADMISSIONS, REMOVED_ORDERS, REMOVED_VICTIMS, refuse_removed

AdmissionName = Literal["greedy", "no-evict"]
OrderName = Literal["fcfs", "priority", "fair-share"]
VictimName = Literal["least-computed", "priority"]
SpeculativeName = Literal["auto", "off", "grammar", "ngram", "draft"]


class SchedulingSettings(Settings):
    """Settings that the scheduler uses without changes."""

    max_num_seqs: int = Field(
        default=64, ge=1, le=4096, description="capacity: most sequences that can ever run at once"
    )
    max_queued_requests: int = Field(default=1024, ge=1, description="queue length above which requests are refused")
    prefill_first: bool = Field(
        default=False, description="compute prompts alone before single tokens, instead of mixing them in a step"
    )
    await_prefix: bool = Field(
        default=True, description="let a prompt wait while another one computes the block that it would compute next"
    )
    admission: Annotated[AdmissionName, refuse_removed(REMOVED_ADMISSIONS)] = Field(
        default="greedy",
        description="memory an admission must leave. greedy: the watermark; no-evict: the largest future need of all "
        "that run",
    )
    order: Annotated[OrderName | None, refuse_removed(REMOVED_ORDERS)] = Field(
        default=None,
        description="who is next. fcfs: first come; priority: lowest first, preempting running requests of a lower "
        "class; fair-share: the tenant served least (VTC) (default: fair-share with api-keys, else fcfs)",
    )
    priority_aging: float = Field(
        default=0, ge=0, description="order priority: seconds of waiting that are worth one class; 0 for no aging"
    )
    pause_lower_classes: bool = Field(
        default=False,
        description="order priority: while prompts of a class are computed, nothing of the classes below it is",
    )
    reserved_slots: int = Field(
        default=0, ge=0, description="slots under the live cap that only requests with a priority below 0 get"
    )
    victim: Annotated[VictimName, refuse_removed(REMOVED_VICTIMS)] = Field(
        default="least-computed", description="who is preempted when the KV pool runs dry"
    )

    speculative: SpeculativeName = Field(
        default="auto",
        description="tokens proposed before they are sampled, and verified several in a step with the same output. "
        "grammar: those that a request's grammar forces; ngram: also those that followed its last ones before; draft: "
        "also those that draft-model says; auto: ngram on a CPU, off on CUDA; off with admission no-evict",
    )

    @model_validator(mode="after")
    def _check_scheduling(self) -> Self:
        if self.reserved_slots >= self.max_num_seqs:
            raise ValueError(
                f"reserved_slots is {self.reserved_slots}: must be below max_num_seqs, which is {self.max_num_seqs}"
            )
        if self.pause_lower_classes and self.order != "priority":
            raise ValueError("pause_lower_classes is True: must be False without order 'priority'")
        if self.pause_lower_classes and self.prefill_first:
            raise ValueError("pause_lower_classes is True: must be False with prefill_first")
        return self


class CapacitySettings(SchedulingSettings):
    """With the sizes that follow from model and device where they are not set, and with what may run at first."""

    max_model_len: int | None = Field(
        default=None, ge=16, description="longest prompt plus output, in tokens (default: the model's context)"
    )
    max_batched_tokens: int | None = Field(
        default=None,
        ge=1,
        description="capacity: most tokens that one step can ever hold "
        "(default: 8192 on CUDA, 512 on CPUs; max-num-seqs where that is more)",
    )
    live_cap: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="sequences that may run at first, 1..max-num-seqs (default: max-num-seqs)",
    )
    token_budget: int | None = Field(
        default=None,
        ge=1,
        description="tokens that a step may hold at first, live-cap..max-batched-tokens (default: max-batched-tokens)",
    )

    @model_validator(mode="after")
    def _check_capacity(self) -> Self:
        if self.live_cap is not None and self.live_cap > self.max_num_seqs:
            raise ValueError(f"live_cap is {self.live_cap}: must be at most max_num_seqs, which is {self.max_num_seqs}")
        if self.max_batched_tokens is not None and self.max_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_batched_tokens is {self.max_batched_tokens}: must be at least max_num_seqs, which is "
                f"{self.max_num_seqs}, so that every running sequence can advance in a step"
            )
        if self.token_budget is None:
            return self
        if self.max_batched_tokens is not None and self.token_budget > self.max_batched_tokens:
            raise ValueError(
                f"token_budget is {self.token_budget}: must be at most max_batched_tokens, which is "
                f"{self.max_batched_tokens}"
            )
        if self.token_budget < (cap := self.live_cap or self.max_num_seqs):
            raise ValueError(
                f"token_budget is {self.token_budget}: must be at least {cap}, the sequences that may run at first"
            )
        return self
