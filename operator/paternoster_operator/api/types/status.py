"""Types of ``status``; no logic."""

from typing import Annotated, Literal

from pydantic import Field

from paternoster_contract.limits import MAX_ADAPTERS, MAX_ALIASES
from paternoster_operator.api.types.fields import DATE_TIME, INT32, INT64, Count, Document, Positive
from paternoster_operator.engines.adapter import Actuator, RuntimeType


class Condition(Document):
    """One aspect of the state, as in metav1.Condition."""

    type: str = Field(max_length=316)
    status: Literal["True", "False", "Unknown"]
    reason: str = Field(min_length=1, max_length=1024)
    message: str = Field(default="", max_length=32_768)
    observed_generation: int = Field(default=0, ge=0, json_schema_extra=INT64)
    last_transition_time: str = Field(json_schema_extra=DATE_TIME)


class LoraAdapterStatus(Document):
    """One of spec.adapters."""

    name: str = Field(max_length=128)
    replicas: Count = 0
    """Replicas that serve it."""
    reason: str | None = Field(default=None, max_length=1024)
    """Loading, LoadFailed, or why the fleet does not have its name; unset where every replica has this version."""
    message: str | None = Field(default=None, max_length=32_768)


class EngineStatus(Document):
    """The engine that the manifest names."""

    type: RuntimeType
    version: str = Field(default="", max_length=64)
    """As all engines report it; empty where they differ or do not report it."""
    actuator: Actuator
    """What moves live cap and token budget; Gateway: gateways hold the live cap, and nothing moves a token budget."""
    capabilities: list[Annotated[str, Field(max_length=63)]] = Field(default_factory=list, max_length=16)
    """What the operator can do with it beyond replicas."""


class ConcurrencyStatus(Document):
    """The live cap."""

    capacity: Count | None = None
    """engine.maxNumSeqs of the ready engines; unset while none of them reports, as the two below."""
    target: Count = 0
    """Live cap that the operator sets on every engine."""
    current_min: Count | None = None
    current_max: Count | None = None


class GatewayCapStatus(Document):
    """The live cap as gateways hold it: a bound on the requests of each replica, beyond which they wait."""

    max_in_flight: Positive
    """Requests that a replica gets at a time from all gateways."""
    parts: dict[str, Positive] = Field(default_factory=dict, max_length=256)
    """Of each gateway, by its instance."""
    reason: str = Field(max_length=1024)
    """Why no call moves the cap of the engines."""


class TokenBudgetStatus(Document):
    """The live token budget; unset where an engine has none, or none reports."""

    capacity: Count | None = None
    """Most tokens of a step of the ready engines."""
    target: Count | None = None
    """Token budget that the operator sets on every engine."""
    current: Count | None = None
    """Smallest of the ready engines."""


class ReplicaModelStatus(Document):
    """What a step of an engine takes, in seconds, fitted to what the engines report, and how much fits into one."""

    fixed_seconds: str
    per_prefill_token_seconds: str
    per_decode_sequence_seconds: str
    per_kv_token_seconds: str
    per_prefill_pair_seconds: str
    fit_percent: Count
    """Share of the variance of steps' times that this explains."""
    largest_step_milliseconds: Count
    """What a step as large as the capacity takes beside what decodes."""
    kv_blocks: Count = 0
    """Blocks of the smallest KV pool."""
    kv_block_size: Count = 0
    """Tokens of a block."""
    max_model_len: Count = 0
    """Longest prompt plus output, tokens."""


class LoadStatus(Document):
    """What the engines last reported, rounded; Prometheus has it in full. What they do not report is unset."""

    running_requests: Count | None = None
    waiting_requests: Count | None = None
    held_requests: Count = 0
    utilization_percent: Count | None = None
    """Sequences that the traffic wants, in percent of what the replicas sustain: what autoscaling's
    targetUtilizationPercent is compared with. Unset without autoscaling."""
    kv_cache_percent: Count | None = None
    finished_requests: Count | None = None
    """In the window that preemptedRequests and preemptionsPerThousand are of."""
    preempted_requests: Count | None = None
    """Distinct ones; those that have not finished yet count, too."""
    preemptions_per_thousand: Count | None = None
    generation_tokens_per_second: Count | None = None
    sample_time: str | None = Field(default=None, json_schema_extra=DATE_TIME)
    fresh: bool = False


class OtherInstallationStatus(Document):
    """An installation that watches this LLMDeployment, too, and leaves it alone."""

    name: str = Field(min_length=1, max_length=317)
    """Namespace and name of its operators' Lease."""
    seen_time: str = Field(json_schema_extra=DATE_TIME)
    """When it last wrote this; it does so every two minutes."""


class DefaultParametersStatus(Document):
    """Sampling settings of requests that leave them out: the model's publisher recommends them, the engines report."""

    temperature: str | None = Field(default=None, max_length=32)
    top_p: str | None = Field(default=None, max_length=32)
    top_k: int | None = Field(default=None, ge=-1, le=2**31 - 1, json_schema_extra=INT32)
    min_p: str | None = Field(default=None, max_length=32)
    repetition_penalty: str | None = Field(default=None, max_length=32)
    max_tokens: Positive | None = None


class BoundsStatus(Document):
    """Replicas allowed now."""

    min_replicas: Count = 0
    max_replicas: Count = 0
    """The GPU budget is in it."""
    schedules: list[str] = Field(default_factory=list, max_length=16)
    """Those in force."""


class StartupParts(Document):
    """Seconds of the latest start; what is missing to all of it went into scheduling, images and probes."""

    download: Count = 0
    """Of the model, by the pod's init container or by the engine."""
    imports: Count = 0
    """From the engine's exec until its libraries were there."""
    load: Count = 0
    """Of the weights."""
    warm_up: Count = 0
    """Of the KV pool, of kernels and of all else."""


class StartupStatus(Document):
    """How long a replica takes from its creation until it serves."""

    last_seconds: Count = 0
    average_seconds: Count = 0
    """Weighted towards the latest."""
    observed_starts: Count = 0
    last_parts: StartupParts | None = None
    """Unset where the engine that started last did not tell."""


class EconomicsStatus(Document):
    """What the fleet costs."""

    basis: Literal["Allocation"] = "Allocation"
    """GPUs count while pods hold them, whether they serve or not."""
    currency: str = ""
    gpus: Count = 0
    """GPUs that pods hold."""
    cost_per_hour: str = ""
    cost_per_million_output_tokens: str | None = None
    """At the load's rate of tokens; unset while there are none."""


class DecisionRecord(Document):
    """One decision of the scaling law."""

    time: str = Field(json_schema_extra=DATE_TIME)
    loop: str = Field(min_length=1, max_length=63)
    """What it moves: Replicas, LiveCap or TokenBudget; Concurrency in records of earlier versions."""
    action: Literal["Up", "Down", "Hold"]
    from_: int = Field(alias="from", json_schema_extra=INT32)
    to: int = Field(json_schema_extra=INT32)
    recommended: int = Field(json_schema_extra=INT32)
    """What the law asked for before limits."""
    reason: str
    message: str
    limited_by: list[str] = Field(default_factory=list)
    inputs: dict[str, str] = Field(default_factory=dict)
    formula: str = Field(default="", max_length=1024)
    """How recommended came about, with its numbers."""
    otherwise: str = Field(default="", max_length=1024)
    """What would have happened without limits, or without the other loop."""
    applied: bool = False


class LLMDeploymentStatus(Document):
    """What is."""

    observed_generation: int = Field(default=-1, json_schema_extra=INT64)
    conditions: list[Condition] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    replicas: Count = 0
    ready_replicas: Count = 0
    updated_replicas: Count = 0
    pending_replicas: Count = 0
    draining_replicas: Count = 0
    desired_replicas: Count = 0
    selector: str = ""
    """Label selector of the engine pods, for the scale subresource."""
    endpoint: str = ""
    """URL that clients use: the gateway's, or that of the engines' Service where there is no gateway."""
    served_model: str = ""
    """Name that gateways send requests to this fleet by; empty for none."""
    served_aliases: list[str] = Field(default_factory=list, max_length=MAX_ALIASES)
    """Further such names."""
    adapters: list[LoraAdapterStatus] = Field(default_factory=list, max_length=MAX_ADAPTERS)
    installation: str | None = None
    """Installation that reconciles this, by the namespace and name of its operators' Lease; others leave it alone."""
    shard_token: int | None = Field(default=None, ge=0, json_schema_extra={"format": "int64"})
    """Grows each time that another operator of an installation with shards takes this over."""
    other_installation: OtherInstallationStatus | None = None
    engine: EngineStatus | None = None
    max_model_len: Count | None = None
    """Longest prompt plus output in tokens, as the engines report it; gateways refuse what is longer."""
    default_parameters: DefaultParametersStatus | None = None
    """What gateways show in /v1/models; unset where no engine has reported any."""
    concurrency: ConcurrencyStatus = Field(default_factory=ConcurrencyStatus)
    gateway_cap: GatewayCapStatus | None = None
    """Unset where the engines hold the live cap."""
    token_budget: TokenBudgetStatus | None = None
    replica_model: ReplicaModelStatus | None = None
    load: LoadStatus = Field(default_factory=LoadStatus)
    bounds: BoundsStatus | None = None
    startup: StartupStatus | None = None
    economics: EconomicsStatus | None = None
    decisions: list[DecisionRecord] = Field(default_factory=list, max_length=10)
    """The last decisions that changed something, or that began to hold for another reason; newest first."""
    last_scale_time: str | None = Field(default=None, json_schema_extra=DATE_TIME)
