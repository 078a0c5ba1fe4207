"""The types of ``LLMDeployment`` ``paternoster.dev/v1alpha1``; no logic.

Field names on the wire are camelCase. Every default here is also the schema's default, so a manifest means the same
on a cluster and on a laptop. No floats, as the Kubernetes API conventions ask: shares are percent or per thousand.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

INT32: JsonDict = {"format": "int32"}
INT64: JsonDict = {"format": "int64"}
DATE_TIME: JsonDict = {"format": "date-time"}
Count = Annotated[int, Field(ge=0, le=2**31 - 1, json_schema_extra=INT32)]
Positive = Annotated[int, Field(ge=1, le=2**31 - 1, json_schema_extra=INT32)]
Seconds = Annotated[int, Field(ge=0, le=86_400, json_schema_extra=INT32)]
_QUANTITY = r"^[0-9]+(\.[0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"
Quantity = Annotated[
    str,
    Field(pattern=_QUANTITY, max_length=32),
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": _QUANTITY, "maxLength": 32}),
]
"""A Kubernetes resource quantity, such as 500m, 2 or 512Mi."""


class Document(BaseModel):
    """A part of the resource: camelCase on the wire, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", use_attribute_docstrings=True
    )


class Model(Document):
    """Which model is served, and under what name."""

    source: str = Field(
        max_length=2048,
        pattern=r"^(package://[A-Za-z_][A-Za-z0-9_.]*|file:///.+)$",
    )
    """Where the weights are: package://python_package that carries one .gguf file, or file:///path inside the engine's
    image or a mounted volume."""
    served_name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._/-]{1,128}$")
    """Name that clients use; the resource's own name when unset."""


class ImagePullPolicy(StrEnum):
    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class Engine(Document):
    """Start-up settings of each engine; a change rolls the pods."""

    image: str = Field(default="paternoster-engine:0.1.0", min_length=1, max_length=512)
    """Container image with the engine."""
    image_pull_policy: ImagePullPolicy = ImagePullPolicy.IF_NOT_PRESENT
    max_num_seqs: int = Field(default=64, ge=1, le=4096, json_schema_extra=INT32)
    """Capacity: most sequences an engine can ever run at once. The live cap moves below it without a restart."""
    max_model_len: int | None = Field(default=None, ge=16, le=2**31 - 1, json_schema_extra=INT32)
    """Longest prompt plus output, in tokens; the model's context when unset."""
    max_batched_tokens: Positive = 512
    """Token budget of one step."""
    kv_cache_memory: Quantity = "512Mi"
    """Memory for the KV pool of each engine."""
    block_size: int = Field(default=32, ge=1, le=1024, json_schema_extra=INT32)
    """Tokens per KV block."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Number format; auto is bfloat16 where the device computes it natively."""
    max_queued_requests: Positive = 1024
    """Waiting requests above which an engine refuses new ones with 503."""
    prefix_cache: bool = True
    """Serve repeated prompt prefixes from the KV pool."""


class Gpu(Document):
    """GPUs of each engine."""

    count: int = Field(default=0, ge=0, le=16, json_schema_extra=INT32)
    resource_name: str = Field(default="nvidia.com/gpu", min_length=1, max_length=253)
    """Extended resource that the device plugin offers."""


class Resources(Document):
    """Resources of each engine."""

    gpu: Gpu = Field(default_factory=Gpu)
    requests: dict[str, Quantity] = Field(default_factory=dict)
    limits: dict[str, Quantity] = Field(default_factory=dict)
    """limits.cpu, rounded up, is also the number of compute threads."""


class Toleration(Document):
    """As in a pod's spec."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = Field(default=None, ge=0, json_schema_extra=INT64)


class ScaleUp(Document):
    """How fast replicas may be added."""

    stabilization_window_seconds: Seconds = 0
    """Add only what was wanted throughout this window."""
    max_percent: int = Field(default=100, ge=0, le=1000, json_schema_extra=INT32)
    """Most replicas added per period, in percent of those at its beginning; the larger of the two limits counts."""
    max_pods: Count = 4
    """Most replicas added per period."""
    period_seconds: int = Field(default=60, ge=1, le=1800, json_schema_extra=INT32)


class ScaleDown(Document):
    """How fast replicas may be taken away."""

    stabilization_window_seconds: Seconds = 300
    """Take away only what was superfluous throughout this window."""
    max_percent: int = Field(default=25, ge=0, le=100, json_schema_extra=INT32)
    """Most replicas taken per period, in percent of those at its beginning; the larger of the two limits counts."""
    max_pods: Count = 1
    """Most replicas taken per period."""
    period_seconds: int = Field(default=60, ge=1, le=1800, json_schema_extra=INT32)


class AutoscalingMode(StrEnum):
    AUTO = "Auto"
    ADVISORY = "Advisory"
    EXTERNAL = "External"


class Autoscaling(Document):
    """The replica loop."""

    mode: AutoscalingMode = AutoscalingMode.AUTO
    """Auto acts; Advisory computes and records; External leaves replicas to whoever writes /scale."""
    min_replicas: int = Field(default=1, ge=1, le=1000, json_schema_extra=INT32)
    max_replicas: int = Field(ge=1, le=1000, json_schema_extra=INT32)
    target_utilization_percent: int = Field(default=80, ge=10, le=100, json_schema_extra=INT32)
    """Demand (running, waiting and held requests) that is aimed at, in percent of the sum of live caps."""
    tolerance_percent: int = Field(default=10, ge=0, le=50, json_schema_extra=INT32)
    """Distance from the target that is left alone, in percent of it."""
    scale_up: ScaleUp = Field(default_factory=ScaleUp)
    scale_down: ScaleDown = Field(default_factory=ScaleDown)


class ConcurrencyMode(StrEnum):
    FIXED = "Fixed"
    AUTO = "Auto"
    ADVISORY = "Advisory"


class Concurrency(Document):
    """The cap loop: how many sequences each engine may run at once, steered from preemptions."""

    mode: ConcurrencyMode = ConcurrencyMode.FIXED
    """Fixed keeps initial; Auto steers; Advisory computes and records."""
    min: Positive = 1
    """Lowest live cap."""
    max: Annotated[int | None, Field(ge=1, le=4096, json_schema_extra=INT32)] = None
    """Highest live cap; engine.maxNumSeqs when unset."""
    initial: Annotated[int | None, Field(ge=1, le=4096, json_schema_extra=INT32)] = None
    """First live cap; the highest when unset."""
    preemption_target_per_thousand: int = Field(default=20, ge=0, le=1000, json_schema_extra=INT32)
    """Requests preempted per thousand finished that are acceptable."""
    window_seconds: int = Field(default=30, ge=5, le=600, json_schema_extra=INT32)
    """Span of the measurements a decision looks at."""
    cooldown_seconds: int = Field(default=15, ge=0, le=600, json_schema_extra=INT32)
    """Least time between two changes of the cap."""
    increase_step: int = Field(default=4, ge=1, le=1024, json_schema_extra=INT32)
    """Sequences added when there is room."""
    decrease_percent: int = Field(default=20, ge=1, le=90, json_schema_extra=INT32)
    """Share taken away when too many requests are preempted."""
    kv_high_watermark_percent: int = Field(default=90, ge=10, le=100, json_schema_extra=INT32)
    """KV use above which the cap is not raised."""
    min_finished_requests: Count = 5
    """Finished requests in the window below which a preemption rate says little."""


class Rollout(Document):
    """How a change of the pod template reaches the pods."""

    max_surge: Count = 1
    max_unavailable: Count = 0
    progress_deadline_seconds: int = Field(default=1800, ge=1, le=86_400, json_schema_extra=INT32)
    min_ready_seconds: Seconds = 0


class Drain(Document):
    """How an engine ends."""

    timeout_seconds: int = Field(default=300, ge=0, le=3600, json_schema_extra=INT32)
    """Time that running requests get to finish."""


class Admission(Document):
    """What the gateway does while no replica is ready."""

    max_held_requests: Count = 256
    hold_timeout_seconds: Seconds = 120


class Budget(Document):
    """Hard limits on spending."""

    max_gpus: Annotated[int | None, Field(ge=0, le=100_000, alias="maxGPUs", json_schema_extra=INT32)] = None
    """Most GPUs of all replicas together; scaling never asks for more."""


class LLMDeploymentSpec(Document):
    """What is wanted."""

    model: Model
    engine: Engine = Field(default_factory=Engine)
    resources: Resources = Field(default_factory=Resources)
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: list[Toleration] = Field(default_factory=list, max_length=64)
    replicas: Annotated[int | None, Field(ge=0, le=1000, json_schema_extra=INT32)] = None
    """Fixed number of engines; 1 when neither this nor autoscaling is set."""
    autoscaling: Autoscaling | None = None
    concurrency: Concurrency = Field(default_factory=Concurrency)
    rollout: Rollout = Field(default_factory=Rollout)
    drain: Drain = Field(default_factory=Drain)
    admission: Admission = Field(default_factory=Admission)
    budget: Budget = Field(default_factory=Budget)
    paused: bool = False
    """Freeze: the operator looks and reports, and writes nothing but status."""


class Condition(Document):
    """One aspect of the state, as in metav1.Condition."""

    type: str = Field(max_length=316)
    status: Literal["True", "False", "Unknown"]
    reason: str = Field(min_length=1, max_length=1024)
    message: str = Field(default="", max_length=32_768)
    observed_generation: int = Field(default=0, ge=0, json_schema_extra=INT64)
    last_transition_time: str = Field(json_schema_extra=DATE_TIME)


class ConcurrencyStatus(Document):
    """The live cap."""

    capacity: Count = 0
    """engine.maxNumSeqs of the ready engines."""
    target: Count = 0
    """Live cap that every engine is told."""
    current_min: Count = 0
    current_max: Count = 0


class LoadStatus(Document):
    """What the engines last reported, rounded; Prometheus has it in full."""

    running_requests: Count = 0
    waiting_requests: Count = 0
    held_requests: Count = 0
    utilization_percent: Count = 0
    kv_cache_percent: Count = 0
    preemptions_per_thousand: Count = 0
    generation_tokens_per_second: Count = 0
    sample_time: str | None = Field(default=None, json_schema_extra=DATE_TIME)
    fresh: bool = False


class DecisionRecord(Document):
    """One decision of the scaling law."""

    time: str = Field(json_schema_extra=DATE_TIME)
    loop: Literal["Replicas", "Concurrency"]
    action: Literal["Up", "Down", "Hold"]
    from_: int = Field(alias="from", json_schema_extra=INT32)
    to: int = Field(json_schema_extra=INT32)
    recommended: int = Field(json_schema_extra=INT32)
    """What the law asked for before limits."""
    reason: str
    message: str
    limited_by: list[str] = Field(default_factory=list)
    inputs: dict[str, str] = Field(default_factory=dict)
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
    """URL of the engines' Service."""
    served_model: str = ""
    concurrency: ConcurrencyStatus = Field(default_factory=ConcurrencyStatus)
    load: LoadStatus = Field(default_factory=LoadStatus)
    decisions: list[DecisionRecord] = Field(default_factory=list, max_length=10)
    """The last decisions that changed something, or that began to hold for another reason; newest first."""
    last_scale_time: str | None = Field(default=None, json_schema_extra=DATE_TIME)


class Metadata(BaseModel):
    """The part of ObjectMeta that is read; whatever else it carries is kept out of the way."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")

    name: str = Field(max_length=50, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    namespace: str = Field(default="default", max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    deletion_timestamp: str | None = None


class LLMDeployment(BaseModel):
    """The resource."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    api_version: Literal["paternoster.dev/v1alpha1"]
    kind: Literal["LLMDeployment"]
    metadata: Metadata
    spec: LLMDeploymentSpec
    status: dict[str, Any] = Field(default_factory=dict)
    """As last written; read by the status builder alone."""

    @property
    def served_name(self) -> str:
        return self.spec.model.served_name or self.metadata.name
