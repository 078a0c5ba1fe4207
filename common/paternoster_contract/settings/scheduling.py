"""Who runs when: what the scheduler goes by, and how much it may do at once."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from paternoster_contract.flags import Settings
from paternoster_contract.settings.removed import REMOVED_ADMISSIONS, REMOVED_ORDERS, refuse_removed
from paternoster_contract.settings.row import (
    NO_TENANTS,
    SGLANG_ARGS,
    VLLM_SPECULATION,
    OtherEngines,
    SpecField,
    Translation,
    add_note,
    refuse_rest,
)

AdmissionName = Literal["greedy", "no-evict"]
OrderName = Literal["fcfs", "priority", "fair-share"]
SpeculativeName = Literal["auto", "off", "grammar", "ngram", "draft"]

_POSITIVE_INT32 = Annotated[int, Field(ge=1, le=2**31 - 1, json_schema_extra={"format": "int32"})]


# fmt: off
class SchedulingSettings(Settings):
    """Settings that the scheduler uses without changes."""

    max_num_seqs: Annotated[int, SpecField("engine.maxNumSeqs"),
        OtherEngines(
            Translation("max-num-seqs", always=True),
            Translation("max-running-requests", always=True),
            Translation(variable="PATERNOSTER_MAX_NUM_SEQS", note="gateways send a replica no more requests at a time"))
    ] = Field(
        default=64, ge=1, le=4096,
        description="Capacity: most sequences an engine can ever run at once. The live cap moves below it without a "
        "restart.")
    max_queued_requests: Annotated[int, SpecField("engine.maxQueuedRequests"),
        OtherEngines(
            add_note("`--max-num-queued-reqs`, which counts those that run, too", other_flags=("max-num-queued-reqs",)),
            Translation("max-queued-requests", always=True))] = Field(
        default=1024, ge=1, description="Waiting requests above which an engine refuses new ones with 503.")
    prefill_first: Annotated[bool, SpecField("engine.scheduling.prefillFirst"),
        OtherEngines(refuse_rest("vLLM always mixes prompts with single tokens"))] = Field(
        default=False, description="Compute prompts alone before single tokens, instead of mixing them in a step.")
    await_prefix: Annotated[bool, SpecField("engine.scheduling.awaitPrefix")] = Field(
        default=True, description="Let a prompt wait while another one computes the block that it would compute next.")
    admission: Annotated[
        AdmissionName, refuse_removed(REMOVED_ADMISSIONS), SpecField("engine.scheduling.admission")] = Field(
        default="greedy",
        description="Memory that an admission must leave: greedy, the watermark; no-evict, the largest future need of "
        "all that run.")
    order: Annotated[OrderName | None, refuse_removed(REMOVED_ORDERS),
        SpecField("engine.order", "Who is served next; fair-share between tenants where security.apiKeys is set, first "
                  "come first served where not."),
        OtherEngines(
            refuse_rest(NO_TENANTS.vllm.refused, None, "fcfs", "priority", flag="scheduling-policy",
                   value={"priority": "priority"}.get),
            refuse_rest(SGLANG_ARGS, None, "fcfs"))] = Field(
        default=None,
        description="who is next. fcfs: first come; priority: lowest first, preempting running requests of a lower "
        "class; fair-share: the tenant served least (VTC) (default: fair-share with api-keys, else fcfs)")
    priority_aging: Annotated[float,
        SpecField("engine.scheduling.priorityAgingSeconds", "Seconds of waiting that are worth one class with "
                  "engine.order priority; 0 for no aging.", Annotated[int, Field(ge=0, le=86_400)]),
        OtherEngines(refuse_rest("vLLM's priorities do not age"))] = Field(
        default=0, ge=0, description="order priority: seconds of waiting that are worth one class; 0 for no aging")
    pause_lower_classes: Annotated[bool,
        SpecField("engine.scheduling.pauseLowerClasses", "With engine.order priority, compute nothing of the classes "
                  "below while prompts of a class are computed.")] = Field(
        default=False,
        description="order priority: while prompts of a class are computed, nothing of the classes below it is")
    reserved_slots: Annotated[int,
        SpecField("engine.scheduling.reservedSlots", annotation=Annotated[int, Field(ge=0, le=4095)]),
        OtherEngines(refuse_rest("vLLM reserves no slots"))] = Field(
        default=0, ge=0, description="Slots under the live cap that only requests with a priority below 0 get.")
    speculative: Annotated[SpeculativeName,
        SpecField("engine.scheduling.speculative", "Tokens proposed before they are sampled, and verified several in a "
                  "step: grammar, those that a request's grammar forces; ngram, also those that followed its last ones "
                  "before; draft, also those that draftModel says; off, none; auto, ngram on CPUs and off on GPUs. The "
                  "output is the same."),
        OtherEngines(refuse_rest(VLLM_SPECULATION, "auto", "off"), refuse_rest(SGLANG_ARGS, "auto", "off"))] = Field(
        default="auto",
        description="tokens proposed before they are sampled, and verified several in a step with the same output. "
        "grammar: those that a request's grammar forces; ngram: also those that followed its last ones before; draft: "
        "also those that draft-model says; auto: ngram on a CPU, off on CUDA; off with admission no-evict")

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

    max_model_len: Annotated[int | None, SpecField("engine.maxModelLen"),
        OtherEngines(
            Translation("max-model-len"),
            Translation("context-length"),
            Translation(variable="PATERNOSTER_MAX_MODEL_LEN", value=lambda longest: longest or 0,
                        note="0 where it is unset; gateways refuse what is longer"))] = Field(
        default=None, ge=16, description="Longest prompt plus output, in tokens; the model's context when unset.")
    max_batched_tokens: Annotated[int | None,
        SpecField("engine.maxBatchedTokens", "Most tokens that one step can ever hold; the token budget moves below it "
                  "without a restart. When unset 8192 on GPUs, 512 on CPUs, and maxNumSeqs where that is more.",
                  _POSITIVE_INT32 | None),
        OtherEngines(
            Translation("max-num-batched-tokens"),
            Translation("chunked-prefill-size", note="which counts prompt tokens alone"))] = Field(
        default=None, ge=1, description="capacity: most tokens that one step can ever hold "
        "(default: 8192 on CUDA, 512 on CPUs; max-num-seqs where that is more)")
    live_cap: Annotated[int | None, SpecField("concurrency.initial", by_hand=True),
        OtherEngines(
            add_note("the operator sets it live, through the plugin"),
            add_note("the operator sets it live, as `pp_max_micro_batch_size`"),
            add_note("gateways hold it"))] = Field(
        default=None, ge=1, le=4096,
        description="sequences that may run at first, 1..max-num-seqs (default: max-num-seqs)")
    token_budget: Annotated[int | None, SpecField("concurrency.tokenBudget", by_hand=True),
        OtherEngines(
            add_note("the operator sets it live, through the plugin", other_flags=("max-num-scheduled-tokens",)),
            add_note("no call moves it"),
            add_note("no call moves it"))] = Field(
        default=None, ge=1,
        description="tokens that a step may hold at first, live-cap..max-batched-tokens (default: max-batched-tokens)")

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
