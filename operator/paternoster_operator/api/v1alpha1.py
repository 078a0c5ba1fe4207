"""The types of ``LLMDeployment`` ``paternoster.dev/v1alpha1``; no logic.

Field names on the wire are camelCase. Every default here is also the schema's default, so a manifest means the same
on a cluster and on a laptop. No floats, as the Kubernetes API conventions ask: shares are percent or per thousand.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from paternoster_contract.limits import MAX_ADAPTERS
from paternoster_contract.quantity import Quantity, parse_quantity
from paternoster_operator.api.names import NAME_PATTERN, child_name
from paternoster_operator.api.pod.template import PodTemplate
from paternoster_operator.api.types.adapter import ModelAdapter
from paternoster_operator.api.types.autoscaling import ScaleToZero, Schedule
from paternoster_operator.api.types.engine import Engine
from paternoster_operator.api.types.fields import INT32, Count, Document, Positive, Seconds, SubdomainName
from paternoster_operator.api.types.model import Model
from paternoster_operator.api.types.objective import Cost, Slo
from paternoster_operator.api.types.scheduling import SecretName, Toleration, TopologySpread
from paternoster_operator.api.types.target import TargetRef


class Gpu(Document):
    """GPUs of each engine."""

    count: int = Field(default=0, ge=0, le=16, json_schema_extra=INT32)
    """How many; the pod requests them as resourceName, or they come with claimTemplateName. The model is split over
    them, so it must divide the model's key heads."""
    resource_name: str = Field(default="nvidia.com/gpu", min_length=1, max_length=253)
    """Extended resource that the device plugin offers."""
    claim_template_name: SubdomainName | None = None
    """ResourceClaimTemplate (dynamic resource allocation) that brings the GPUs of each engine; resourceName is not
    asked for then."""


class Resources(Document):
    """Resources of each engine.

    Memory and ephemeral-storage get defaults where neither requests nor limits names them: a request of 1Gi, the KV
    pool and the memory to swap to; 128Mi, and a limit of 4Gi.
    """

    gpu: Gpu = Field(default_factory=Gpu)
    requests: dict[str, Quantity] = Field(default_factory=dict)
    limits: dict[str, Quantity] = Field(default_factory=dict)
    """limits.cpu, rounded up, is also the number of compute threads."""

    @property
    def num_gpus(self) -> int:
        """GPUs of an engine: it has a rank for each, as it uses all of them."""
        return self.gpu.count or int(parse_quantity(self.limits.get(self.gpu.resource_name, "0")))


class ScaleUp(Document):
    """How fast replicas may be added."""

    stabilization_window_seconds: Seconds = 0
    """Add only what was wanted throughout this window."""
    max_percent: int = Field(default=100, ge=0, le=1000, json_schema_extra=INT32)
    """Most replicas added per period, in percent of those at its beginning; the larger of the two limits counts."""
    max_pods: Count = 4
    """Most replicas added per period."""
    period_seconds: int = Field(default=15, ge=1, le=1800, json_schema_extra=INT32)


class ScaleDown(Document):
    """How fast replicas may be taken away."""

    stabilization_window_seconds: Seconds | None = None
    """Take away only what was superfluous throughout this window; learnt from starts and peaks if unset."""
    max_percent: int = Field(default=100, ge=0, le=100, json_schema_extra=INT32)
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
    """Auto acts; Advisory computes and records; External leaves replicas to the client of /scale."""
    min_replicas: int = Field(default=1, ge=0, le=1000, json_schema_extra=INT32)
    """0 with scaleToZero only."""
    max_replicas: int = Field(ge=1, le=1000, json_schema_extra=INT32)
    target_utilization_percent: int = Field(default=80, ge=10, le=100, json_schema_extra=INT32)
    """Share of what a replica sustains that is planned for; less where demand is small."""
    tolerance_percent: int = Field(default=10, ge=0, le=50, json_schema_extra=INT32)
    """Distance from the target that is left alone, in percent of it."""
    scale_up: ScaleUp = Field(default_factory=ScaleUp)
    scale_down: ScaleDown = Field(default_factory=ScaleDown)
    scale_to_zero: ScaleToZero = Field(default_factory=ScaleToZero)
    schedules: list[Schedule] = Field(default_factory=list, max_length=16)
    """Narrower bounds at certain times. Where several hold at once, the highest minimum and the lowest maximum count;
    where these cross, the maximum does."""


class ConcurrencyMode(StrEnum):
    FIXED = "Fixed"
    AUTO = "Auto"
    ADVISORY = "Advisory"


class ConcurrencyObjective(StrEnum):
    GOODPUT = "Goodput"
    PREEMPTION_RATE = "PreemptionRate"


class TokenBudget(Document):
    """The budget loop: how many tokens a step of each engine may hold, steered from what a step takes."""

    mode: ConcurrencyMode | None = None
    """Fixed keeps engine.maxBatchedTokens; Auto steers below it; Advisory computes and records. When unset
    concurrency.mode, and Auto where that is unset, too."""
    min: Positive | None = None
    """Lowest token budget; 128 when unset, or what engine.maxBatchedTokens or concurrency.min say where that is less or
    more."""


class Concurrency(Document):
    """The cap loop: how many sequences each engine may run at once, steered from preemptions."""

    mode: ConcurrencyMode | None = None
    """Fixed keeps initial; Auto steers; Advisory keeps initial, and records what Auto would do; Advisory when unset."""
    objective: ConcurrencyObjective = ConcurrencyObjective.GOODPUT
    """What lowers the cap, besides steps that are too long without any prompt. Goodput: more than 5 % of the engines'
    time spent on computing tokens again, for those that report what steps take. PreemptionRate: more preempted requests
    than preemptionTargetPerThousand, at whatever cost of throughput and of first tokens."""
    min: Positive = 1
    """Lowest live cap."""
    max: Annotated[int | None, Field(ge=1, le=4096, json_schema_extra=INT32)] = None
    """Highest live cap; engine.maxNumSeqs when unset."""
    initial: Annotated[int | None, Field(ge=1, le=4096, json_schema_extra=INT32)] = None
    """First live cap; the highest when unset."""
    preemption_target_per_thousand: int = Field(default=20, ge=0, le=1000, json_schema_extra=INT32)
    """Requests preempted per thousand finished that are acceptable."""
    token_budget: TokenBudget = Field(default_factory=TokenBudget)


class Rollout(Document):
    """How a change of the pod template reaches the pods."""

    max_surge: Count | None = None
    """Replicas beyond those wanted while a rollout goes on, within budget.maxGPUs. When unset 1, or 0 where that is all
    that budget or devices allow: an old replica then ends before a new one starts."""
    max_unavailable: Count | None = None
    """Replicas that may be missing while a rollout goes on; 0 when unset, or 1 where maxSurge is 0."""
    progress_deadline_seconds: int | None = Field(default=None, ge=1, le=86_400, json_schema_extra=INT32)
    """Time in which a pod of a rollout must become ready; as long as an engine may take to start when unset."""
    min_ready_seconds: Seconds = 0


class DrainMode(StrEnum):
    HAND_OVER = "HandOver"
    FINISH = "Finish"


class Drain(Document):
    """How an engine ends."""

    mode: DrainMode = DrainMode.HAND_OVER
    """HandOver: streams of a replica that is to end go on at another one as soon as one can go on with them. Finish:
    they stay where they are, up to timeoutSeconds."""
    timeout_seconds: int = Field(default=300, ge=0, le=3600, json_schema_extra=INT32)
    """Time that running requests get to finish once a pod is deleted. Fewer replicas delete a pod when it is idle."""


class Admission(Document):
    """What the gateway does while no replica is ready."""

    max_held_requests: Count = 256
    """Requests that each gateway may hold for the fleet, within the fleet's share of the gateway's places."""
    hold_timeout_seconds: Seconds = 120
    """Time after which a held request is answered 503; one may be earlier where other fleets need its place."""


class Budget(Document):
    """Hard limits on spending."""

    max_gpus: Annotated[int | None, Field(ge=0, le=100_000, alias="maxGPUs", json_schema_extra=INT32)] = None
    """Most GPUs of all replicas together, those beyond the replicas wanted while a rollout goes on among them; scaling
    never asks for more."""


class SecretKey(Document):
    """One key of a Secret in the same namespace."""

    name: SubdomainName
    key: str = Field(default="key", min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")


class Security(Document):
    """The keys of clients that may call the engines.

    Without apiKeySecretRef and apiKeys, any client that reaches the gateway may. Secrets are read again as they change.
    """

    api_key_secret_ref: SecretKey | None = None
    """Bearer keys that clients send, one a line, all of them valid; each is a tenant of its own."""
    api_keys: list[SecretKey] = Field(default_factory=list, max_length=8)
    """Lists of hashed keys with the names of their tenants, limits and expiry; gateways check them."""
    admin_key_secret_ref: SecretKey | None = None
    """Bearer keys of the engines' admin API, one a line, of which the operator sends the first; its own when unset."""

    @property
    def has_client_keys(self) -> bool:
        """Whether clients need one."""
        return self.api_key_secret_ref is not None or bool(self.api_keys)


class LLMDeploymentSpec(Document):
    """What is wanted."""

    model: Model
    adapters: list[ModelAdapter] = Field(default_factory=list, max_length=MAX_ADAPTERS)
    """Adapters (LoRA) of the model, within engine.memory.maxAdapterMemory; a change of them restarts no pod."""
    engine: Engine = Field(default_factory=Engine)
    resources: Resources = Field(default_factory=Resources)
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: list[Toleration] = Field(default_factory=list, max_length=64)
    topology_spread_constraints: list[TopologySpread] = Field(default_factory=list, max_length=16)
    """How the engines are spread; over nodes where possible when empty."""
    priority_class_name: SubdomainName | None = None
    runtime_class_name: SubdomainName | None = None
    service_account_name: SubdomainName | None = None
    """Service account of the engine pods; no token of it is mounted."""
    image_pull_secrets: list[SecretName] = Field(default_factory=list, max_length=16)
    pod_template: PodTemplate = Field(default_factory=PodTemplate)
    security: Security = Field(default_factory=Security)
    replicas: Annotated[int | None, Field(ge=0, le=1000, json_schema_extra=INT32)] = None
    """Fixed number of engines; 1 when neither this nor autoscaling is set."""
    autoscaling: Autoscaling | None = None
    concurrency: Concurrency = Field(default_factory=Concurrency)
    slo: Slo = Field(default_factory=Slo)
    rollout: Rollout = Field(default_factory=Rollout)
    drain: Drain = Field(default_factory=Drain)
    admission: Admission = Field(default_factory=Admission)
    budget: Budget = Field(default_factory=Budget)
    cost: Cost | None = None
    target_ref: TargetRef | None = None
    """Observe the pods of a Deployment that somebody else made, and only advise: as long as this is set, the operator
    makes no pods and changes nothing, and gateways have no route to the fleet."""
    paused: bool = False
    """Freeze: the operator looks and reports, and writes nothing but status."""

    @property
    def is_managed(self) -> bool:
        """Whether the operator changes anything of the fleet."""
        return not self.paused and self.target_ref is None

    @property
    def affordable_replicas(self) -> int | None:
        """Most replicas, those of a rollout's surge among them, that the GPU budget pays for; None without a budget."""
        gpus = self.resources.gpu.count
        return None if self.budget.max_gpus is None or gpus == 0 else self.budget.max_gpus // gpus


class Metadata(BaseModel):
    """The part of ObjectMeta that is read; whatever else it carries is kept out of the way."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")

    name: str = Field(max_length=50, pattern=NAME_PATTERN)
    namespace: str = Field(default="default", max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    uid: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
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
    """Status that was last written; read by the status builder alone."""
    removed_fields: tuple[str, ...] = Field(default=(), max_length=0, exclude=True)
    """Fields and values of a stored resource that its schema no longer has, in words; a manifest has none."""

    @property
    def served_name(self) -> str:
        return self.spec.model.served_name or self.metadata.name

    @property
    def served_names(self) -> tuple[str, ...]:
        """All names that clients may use, ``served_name`` first, each once."""
        return tuple(dict.fromkeys((self.served_name, *self.spec.model.aliases)))

    @property
    def claimed_names(self) -> tuple[str, ...]:
        """All names that no other fleet may have: the served ones, then those of its adapters."""
        return tuple(dict.fromkeys((*self.served_names, *(adapter.name for adapter in self.spec.adapters))))

    @property
    def child_name(self) -> str:
        """Name of its children."""
        return child_name(self.metadata.name)
