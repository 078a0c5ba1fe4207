"""Start-up settings of an engine, as a manifest says them; no logic. Those of ``paternoster_contract.settings``."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from paternoster_contract.limits import MAX_PRIORITY, MIN_PRIORITY
from paternoster_contract.settings.memory import KVCacheDtypeName, PreemptionName
from paternoster_contract.settings.removed import (
    REMOVED_ADMISSIONS,
    REMOVED_ORDERS,
    REMOVED_PREEMPTIONS,
    REMOVED_VICTIMS,
    refuse_removed,
)
from paternoster_contract.settings.scheduling import (
    AdmissionName,
    OrderName,
    SpeculativeName,
    VictimName,
)
from paternoster_operator.api.extra_args import fields_of_settings, parse_extra_args
from paternoster_operator.api.types.fields import (
    INT32,
    Bytes,
    Count,
    Document,
    ImagePullPolicy,
    Positive,
    Quantity,
    Seconds,
)
from paternoster_operator.api.types.http import HttpLimits
from paternoster_operator.api.types.runtime import Runtime

Word = Annotated[str, Field(max_length=1024)]


DRAFT_SOURCES = r"^(package://[A-Za-z_][A-Za-z0-9_.]*|file:///.+)$"


class Scheduling(Document):
    """Who runs when, in each engine."""

    prefill_first: bool = False
    """Compute prompts alone before single tokens, instead of mixing them in a step."""
    await_prefix: bool = True
    """Let a prompt wait while another one computes the block that it would compute next."""
    admission: Annotated[AdmissionName, refuse_removed(REMOVED_ADMISSIONS)] = "greedy"
    """Memory that an admission must leave: greedy, the watermark; no-evict, the largest future need of all that
    run."""
    victim: Annotated[VictimName, refuse_removed(REMOVED_VICTIMS)] = "least-computed"
    """Who is preempted when the KV pool runs dry."""
    speculative: SpeculativeName = "auto"
    """Tokens proposed before they are sampled, and verified several in a step: grammar, those that a request's grammar
    forces; ngram, also those that followed its last ones before; draft, also those that draftModel says; off, none;
    auto, ngram on CPUs and off on GPUs. The output is the same."""
    draft_model: Annotated[str | None, Field(max_length=2048, pattern=DRAFT_SOURCES)] = None
    """With speculative draft, a smaller model with the same vocabulary: package://python_package or file:///path inside
    the engine's image or a mounted volume."""
    priority_aging_seconds: Seconds = 0
    """Seconds of waiting that are worth one class with engine.order priority; 0 for no aging."""
    pause_lower_classes: bool = False
    """With engine.order priority, compute nothing of the classes below while prompts of a class are computed."""
    reserved_slots: int = Field(default=0, ge=0, le=4095, json_schema_extra=INT32)
    """Slots under the live cap that only requests with a priority below 0 get."""


class Memory(Document):
    """The KV pool beside its size, and what becomes of blocks when it runs dry."""

    watermark_percent: int = Field(default=1, ge=0, le=50, json_schema_extra=INT32)
    """Share of the KV pool kept free when admitting."""
    gpu_utilization_percent: int = Field(default=90, ge=1, le=100, json_schema_extra=INT32)
    """Share of the memory that the model leaves free on GPUs that the KV pool takes, where engine.kvCacheMemory is
    unset or 0."""
    preemption: Annotated[PreemptionName, refuse_removed(REMOVED_PREEMPTIONS)] = "recompute"
    """What becomes of a preempted request's blocks: recompute, dropped; swap, copied to memory of the host."""
    swap_memory: Bytes = "256Mi"
    """Memory of the host to swap to."""


class TenantWeight(Document):
    """A tenant's fair share."""

    name: str = Field(min_length=1, max_length=256, pattern=r"^[^=,]+$")
    percent: Positive
    """Share relative to other tenants; they have 100."""


class Tenants(Document):
    """What one tenant may use of each engine where its key says nothing else."""

    max_queued: Count = 0
    """Queued requests above which new ones get 429; 0 for no limit."""
    max_running: Count = 0
    """Sequences that run at once, above which others wait; 0 for no limit."""
    tokens_per_second: Count = 0
    """Prompt and output tokens; 0 for no limit."""
    token_burst: Count = 0
    """Tokens that may be used at once; 0 for ten seconds' worth."""
    weights: list[TenantWeight] = Field(
        default=[],
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Shares with engine.order fair-share."""

    @field_validator("weights")
    @classmethod
    def _names_differ(cls, weights: list[TenantWeight]) -> list[TenantWeight]:
        names = [weight.name for weight in weights]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"must have each tenant once, and has {', '.join(twice)} more than once")
        return weights


class Engine(Document):
    """Start-up settings of each engine; a change rolls the pods."""

    runtime: Runtime = Field(default_factory=Runtime)
    image: Annotated[str | None, Field(min_length=1, max_length=512)] = None
    """Container image with the engine; the operator's own default when unset."""
    image_pull_policy: ImagePullPolicy = ImagePullPolicy.IF_NOT_PRESENT
    max_num_seqs: int = Field(default=64, ge=1, le=4096, json_schema_extra=INT32)
    """Capacity: most sequences an engine can ever run at once. The live cap moves below it without a restart."""
    max_model_len: int | None = Field(default=None, ge=16, le=2**31 - 1, json_schema_extra=INT32)
    """Longest prompt plus output, in tokens; the model's context when unset."""
    max_batched_tokens: Positive | None = None
    """Most tokens that one step can ever hold; the token budget moves below it without a restart. When unset 8192 on
    GPUs, 512 on CPUs, and maxNumSeqs where that is more."""
    kv_cache_memory: Quantity | None = None
    """Memory for the KV pool of each engine, on all its GPUs together; when unset 512Mi on CPUs and, as with 0, most of
    what the model leaves free on GPUs."""
    kv_cache_dtype: KVCacheDtypeName = "auto"
    """What keys and values are kept in: auto, the number format; int8 and, on GPUs that have it, fp8 (e4m3), 8 bits
    with a scale for each token and head, so that about twice as many tokens fit."""
    block_size: int | None = Field(default=None, ge=1, le=1024, json_schema_extra=INT32)
    """Tokens per KV block; 16, 32 or 64 on GPUs. When unset 32, and of another engine what it has by itself."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Number format; auto is bfloat16 where the device computes it natively."""
    max_queued_requests: Positive = 1024
    """Waiting requests above which an engine refuses new ones with 503."""
    prefix_cache: bool = True
    """Serve repeated prompt prefixes from the KV pool."""
    parse_special_tokens: bool = False
    """Let what is spelled like a control token in chat messages, such as <|im_end|>, be that token; otherwise it is
    plain text."""
    disable_any_whitespace: bool = False
    """Let JSON that answers are held to have no white space between its tokens, as if each request asked for that."""
    cache_isolation: Literal["Tenant", "Fleet"] = "Tenant"
    """Who is served from prefixes that a tenant's prompts left: Tenant, that tenant alone, as otherwise the time to a
    first token reveals others' prompts; Fleet, all tenants. Without keys there is one tenant."""
    order: Annotated[OrderName, refuse_removed(REMOVED_ORDERS)] | None = None
    """Who is served next; fair-share between tenants where security.apiKeys is set, first come first served where
    not."""
    min_priority: int = Field(default=0, ge=MIN_PRIORITY, le=MAX_PRIORITY, json_schema_extra=INT32)
    """Most urgent class that a request may ask for where its key says nothing else; lower is more urgent."""
    max_priority: int = Field(default=MAX_PRIORITY, ge=MIN_PRIORITY, le=MAX_PRIORITY, json_schema_extra=INT32)
    """Least urgent class that it may ask for."""
    startup_timeout_seconds: int | None = Field(default=None, ge=10, le=86_400, json_schema_extra=INT32)
    """Longest time from the start of an engine until it serves, after which the kubelet restarts it; what an init
    container fetches comes before. When unset 1800, or as long as it takes to read as much as the memory and the GPUs
    of resources hold at 64 MiB/s, where that is longer."""
    batch_invariant: bool = False
    """Give a request the same tokens alone and in any batch; slower."""
    quantization: Literal["auto", "none", "int8"] = "auto"
    """auto keeps matrices in the blocks of few bits that its files have, where there are products with them: as
    accurate as none, which makes them numbers of dtype. int8 keeps weights in 8 bits and makes the inputs of products
    8 bits wide, on CPUs alone: less accurate."""
    vllm_metrics: bool | None = None
    """Also export the core metrics under vLLM's names; as the operator's setting for all fleets when unset."""
    scheduling: Scheduling = Field(default_factory=Scheduling)
    memory: Memory = Field(default_factory=Memory)
    tenants: Tenants = Field(default_factory=Tenants)
    http: HttpLimits = Field(default_factory=HttpLimits)
    extra_args: list[Word] = Field(default=[], max_length=64)
    """Flags of paternoster serve for settings that no field has yet, as --flag, value. The operator checks them."""

    @field_validator("extra_args")
    @classmethod
    def _check_extra_args(cls, words: list[str]) -> list[str]:
        parse_extra_args(words, fields_of_settings(cls))
        return words

    def extra_settings(self) -> dict[str, Any]:
        """What :attr:`extra_args` sets, by setting."""
        return parse_extra_args(self.extra_args, fields_of_settings(type(self)))
