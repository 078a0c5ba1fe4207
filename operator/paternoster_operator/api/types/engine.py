"""Start-up settings of an engine in a manifest; the table of settings has most of their fields."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, field_validator

from paternoster_contract.settings.memory import PreemptionName
from paternoster_operator.api.extra_args import fields_of_settings, parse_extra_args
from paternoster_operator.api.types.fields import INT32, Document, ImagePullPolicy, Positive
from paternoster_operator.api.types.runtime import Runtime
from paternoster_operator.api.types.settings_fields import add_settings

Word = Annotated[str, Field(max_length=1024)]


@add_settings("engine.scheduling")
class Scheduling(Document):
    """Who runs when, in each engine."""


@add_settings("engine.memory")
class Memory(Document):
    """The KV pool beside its size, and what becomes of blocks when it runs dry."""

    if TYPE_CHECKING:  # what the operator and the catalogue read
        gpu_utilization_percent: ClassVar[int]
        preemption: ClassVar[PreemptionName]
        swap_memory: ClassVar[str]
        max_adapter_memory: ClassVar[str | None]


class TenantWeight(Document):
    """A tenant's fair share."""

    name: str = Field(min_length=1, max_length=256, pattern=r"^[^=,]+$")
    percent: Positive
    """Share relative to other tenants; they have 100."""


@add_settings("engine.tenants", last=("weights",))
class Tenants(Document):
    """What one tenant may use of each engine where its key says nothing else."""

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


@add_settings("engine.http")
class HttpLimits(Document):
    """Limits of each of an engine's ports: bytes, seconds and connections of one client."""


@add_settings(
    "engine",
    first=(
        "runtime", "image", "image_pull_policy", "max_num_seqs", "max_model_len", "max_batched_tokens",
        "kv_cache_memory", "kv_cache_dtype", "block_size", "dtype", "max_queued_requests", "prefix_cache",
        "parse_special_tokens", "disable_any_whitespace", "cache_isolation", "order", "min_priority", "max_priority",
        "startup_timeout_seconds", "batch_invariant", "quantization", "vllm_metrics",
    ),
    last=("scheduling", "memory", "tenants", "http", "extra_args"),
)  # fmt: skip
class Engine(Document):
    """Start-up settings of each engine; a change rolls the pods."""

    runtime: Runtime = Field(default_factory=Runtime)
    image: Annotated[str | None, Field(min_length=1, max_length=512)] = None
    """Container image with the engine; the operator's own default when unset."""
    image_pull_policy: ImagePullPolicy = ImagePullPolicy.IF_NOT_PRESENT
    startup_timeout_seconds: int | None = Field(default=None, ge=10, le=86_400, json_schema_extra=INT32)
    """Longest time from the start of an engine until it serves, after which the kubelet restarts it; what an init
    container fetches comes before. When unset 1800, or as long as it takes to read as much as the memory and the GPUs
    of resources hold at 64 MiB/s, where that is longer."""
    scheduling: Scheduling = Field(default_factory=Scheduling)
    memory: Memory = Field(default_factory=Memory)
    tenants: Tenants = Field(default_factory=Tenants)
    http: HttpLimits = Field(default_factory=HttpLimits)
    extra_args: list[Word] = Field(default=[], max_length=64)
    """Flags of paternoster serve for settings that no field has yet, as --flag, value. The operator checks them."""

    if TYPE_CHECKING:
        max_num_seqs: ClassVar[int]
        max_model_len: ClassVar[int | None]
        max_batched_tokens: ClassVar[int | None]
        max_queued_requests: ClassVar[int]
        kv_cache_memory: ClassVar[str | None]
        prefix_cache: ClassVar[bool]

    @field_validator("extra_args")
    @classmethod
    def _check_extra_args(cls, words: list[str]) -> list[str]:
        parse_extra_args(words, fields_of_settings())
        return words

    def extra_settings(self) -> dict[str, Any]:
        """What :attr:`extra_args` sets, by setting."""
        return parse_extra_args(self.extra_args, fields_of_settings())
