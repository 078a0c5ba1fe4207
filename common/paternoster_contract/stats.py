"""What an engine and a gateway tell about themselves in one small document.

The operator reads these every few seconds from every replica, so they stay flat and cheap. Names that end
in ``_total`` only grow, from zero at ``started_at``; a changed ``instance``, or a fall, means that they began anew.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from paternoster_contract.admin import LONGEST_QUEUE_MILLISECONDS, LiveConfigPatch
from paternoster_contract.default_parameters import DefaultParameters
from paternoster_contract.limits import LONGEST_FAULT, LONGEST_NAME, MAX_ADAPTERS, MAX_ALIASES

MOST_MODELS = 10_000
"""In a gateway's stats, which share them out by namespace."""
MOST_MODEL_BYTES = 6 * 2**20
"""Limit for the models of a gateway's stats in JSON."""
FLEET = "fleet"
"""Parameter of a gateway's stats: a uid, whose models alone are reported."""
WAITING = "waiting"
"""Parameter of a gateway's stats: only models whose requests wait for a replica, or were refused for want of one."""
Count = Annotated[int, Field(ge=0, le=2**53)]
"""Also the largest whole number that every reader of JSON takes as it is."""
Seconds = Annotated[float, Field(ge=0, le=1e12)]
Sequences = Annotated[int, Field(ge=0, le=2**20)]
# Of two bounds on one side pydantic checks the last, so that a field cannot narrow the types above.
PositiveCount = Annotated[int, Field(ge=1, le=2**53)]
PositiveSequences = Annotated[int, Field(ge=1, le=2**20)]
Sum = Annotated[float, Field(ge=0, le=1e40)]
STEP_SUMS = 21
"""Pairs of six numbers, each once."""
_BOUNDED = ConfigDict(allow_inf_nan=False)


class EngineState(StrEnum):
    """Where an engine is in its life."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"


class StartPart(StrEnum):
    """What the time from an engine's exec until it is ready went into; each second is of one part."""

    IMPORTS = "imports"
    DOWNLOAD = "download"
    LOAD = "load"
    WARM_UP = "warm_up"


class Unreported(StrEnum):
    """What an engine that is not ours may not report: numbers of it are 0, or the least allowed, and mean nothing."""

    LIMITS = "limits"
    """Capacity and live cap, which are then what the operator has them be."""
    PREEMPTIONS = "preemptions"
    """Preempted requests and preemptions."""
    RECOMPUTED_TOKENS = "recomputed tokens"
    """Tokens computed again because of a preemption."""
    KV_BLOCKS = "KV blocks"
    REQUESTS = "requests"
    """Requests that came, ended or were refused."""
    STEPS = "steps"
    """What a step has in it and how long it takes."""


class LoraAdapterStats(BaseModel):
    """One adapter (LoRA) of an engine: what requests for its name get, and what came of its last load."""

    model_config = ConfigDict(allow_inf_nan=False, frozen=True)

    name: str = Field(max_length=LONGEST_NAME)
    version: str = Field(default="", max_length=64, description="lora_version of its last load")
    ready: bool = Field(description="whether requests for the name are answered, by this version or the one before")
    loading: bool = Field(default=False, description="true until the last load has ended")
    fault: str = Field(default="", max_length=LONGEST_FAULT, description="why the last load failed; empty: it did not")
    failed_at: Seconds | None = Field(default=None, description="when that was, in seconds since the epoch")


class BatchLaneStats(BaseModel):
    """Statistics of the lane for batches, of which no number beside it has any part."""

    model_config = _BOUNDED

    running: Sequences = Field(description="sequences that hold KV blocks")
    waiting: Sequences = Field(description="queued sequences, preempted ones included")
    kv_blocks_used: Count = Field(description="blocks that these alone hold")
    requests_total: Count = Field(description="requests admitted to the queue")
    requests_finished_total: Count = Field(description="requests that ended, whatever the reason")
    preemptions_total: Count = Field(description="preemption events, most of them for online requests")
    prompt_tokens_total: Count
    generation_tokens_total: Count
    computed_tokens_total: Count = Field(description="tokens that went through the model, recomputed ones included")
    recomputed_tokens_total: Count = Field(description="tokens computed again because of a preemption")


class EngineStats(BaseModel):
    """Answer of the engine's ``GET /stats``."""

    model_config = _BOUNDED

    instance: str = Field(
        max_length=128,
        description="random per process start: tells a counter reset from a slow minute; empty "
        "from an engine that does not tell",
    )
    model: str = Field(max_length=LONGEST_NAME)
    engine_version: str = Field(default="", max_length=64, description="empty from an engine that does not report one")
    state: EngineState
    started_at: Seconds = Field(description="seconds since the epoch")
    start_seconds: dict[StartPart, Annotated[float, Field(ge=0, le=1e9)]] = Field(
        default_factory=dict,
        description="from the process's start until it was ready, by part: imports, download of the model by the "
        "engine itself, load of its weights, warm-up of all else; empty from an engine that does not report one",
    )
    time: Seconds = Field(description="seconds since the epoch when this was taken")
    last_tick_age_seconds: Seconds = Field(description="age of the engine loop's last tick")

    capacity: PositiveSequences = Field(description="max_num_seqs at start")
    live_cap: PositiveSequences = Field(description="sequences that may run now")
    max_batched_tokens: Count = Field(
        default=0, description="tokens that a step can ever hold; 0 from an engine that does not tell"
    )
    token_budget: Count = Field(default=0, description="tokens that a step may hold now")
    max_queue_milliseconds: Count | None = Field(
        default=None,
        le=LONGEST_QUEUE_MILLISECONDS,
        description="a request that would wait longer than this is refused; 0: none is; null from an engine that does "
        "not tell",
    )
    max_model_len: Count = Field(
        default=0, description="longest prompt plus output, tokens; 0 from an engine that does not tell"
    )
    default_parameters: DefaultParameters | None = Field(
        default=None,
        description="sampling settings of requests that leave them out; null from an engine without any"
        " of them to report",
    )
    running: Sequences = Field(description="sequences that hold KV blocks")
    waiting: Sequences = Field(description="queued sequences, preempted ones included")
    idle_seconds: Seconds | None = Field(
        default=None,
        description="since its last request ended, 0 while it has one; null where it had none yet, and from an engine "
        "that does not tell",
    )

    kv_block_size: PositiveCount = Field(description="tokens per block")
    kv_blocks: PositiveCount = Field(description="blocks in the pool")
    kv_blocks_used: Count = Field(description="blocks that some request holds")
    kv_blocks_cached: Count = Field(description="blocks that no request holds and the prefix cache can still serve")
    kv_projected_peak: float = Field(
        ge=0, le=1e9, description="largest share of the pool the running requests can come to need; may exceed 1"
    )

    requests_total: Count = Field(description="requests admitted to the queue")
    requests_finished_total: Count = Field(description="requests that ended, whatever the reason")
    requests_rejected_total: Count = Field(description="requests refused before the queue")
    requests_rejected_full_total: Count = Field(
        default=0, description="of requests_rejected_total, those that the queue, or their tenant's share of it, had no"
        " place for",
    )  # fmt: skip
    requests_preempted_total: Count = Field(description="distinct requests preempted at least once")
    preemptions_total: Count = Field(description="preemption events")
    prompt_tokens_total: Count
    cached_prompt_tokens_total: Count = Field(description="prompt tokens served by the prefix cache")
    generation_tokens_total: Count
    computed_tokens_total: Count = Field(description="tokens that went through the model, recomputed ones included")
    recomputed_tokens_total: Count = Field(description="tokens computed again because of a preemption")
    queue_seconds_total: Seconds = Field(description="sum over requests of arrival to first scheduling")
    queue_count_total: Count = Field(description="requests counted in queue_seconds_total")
    first_token_seconds_total: Seconds = Field(default=0, description="sum over requests of arrival to first token")
    first_token_count_total: Count = Field(default=0, description="requests counted in first_token_seconds_total")
    inter_token_seconds_total: Seconds = Field(
        default=0, description="sum over output tokens but the first of the time since the one before"
    )
    inter_token_count_total: Count = Field(default=0, description="tokens counted in inter_token_seconds_total")

    step_sums: tuple[Sum, ...] = Field(
        default=(),
        max_length=STEP_SUMS,
        description="over computed steps, sums of the products of (1, prefill tokens, decode sequences, KV tokens "
        "read, pairs of prefill token and context token, seconds): the upper triangle row by row; empty from an engine "
        "that does not tell",
    )

    batch: BatchLaneStats | None = Field(default=None, description="null from an engine without a lane for batches")
    adapters: tuple[LoraAdapterStats, ...] | None = Field(
        default=None, max_length=MAX_ADAPTERS, description="the first of its adapters (LoRA); null from an engine that "
        "has none",
    )  # fmt: skip
    unreported: tuple[Unreported, ...] = Field(
        default=(), max_length=len(Unreported), description="what the engine does not report; our own reports all"
    )

    @field_validator("step_sums")
    @classmethod
    def _check_length(cls, sums: tuple[float, ...]) -> tuple[float, ...]:
        if sums and len(sums) != STEP_SUMS:
            raise ValueError(f"has {len(sums)} numbers: must be {STEP_SUMS}, or none")
        return sums

    @property
    def limits(self) -> LiveConfigPatch:
        """The limits in force, as a call would set them; without a token budget where an earlier release has none."""
        return LiveConfigPatch(
            live_cap=self.live_cap,
            token_budget=self.token_budget if self.max_batched_tokens else None,
            max_queue_milliseconds=self.max_queue_milliseconds,
        )

    @property
    def kv_usage(self) -> float:
        """Share of the KV pool that requests hold, 0..1."""
        return self.kv_blocks_used / self.kv_blocks


def begins_anew(value: float, before: float) -> bool:
    """Return whether a counter of one process fell because it began at 0 again, as in Prometheus.

    A counter that is the sum or difference of several may dip, where an engine counts these one after another.
    """
    return value < before / 2


def find_growth(value: float, before: float) -> float:
    """Growth of a counter of one process since it had ``before``; 0 where it dips."""
    return value if begins_anew(value, before) else max(value - before, 0)


class GatewayModelStats(BaseModel):
    """What the gateway reports of one served model."""

    model_config = _BOUNDED

    fleet: str = Field(
        default="", max_length=128, description="uid of the LLMDeployment that the gateway's routing table names for it"
    )
    aliases: list[Annotated[str, Field(max_length=LONGEST_NAME)]] = Field(
        default_factory=list, max_length=MAX_ALIASES, description="further names of the model"
    )
    in_flight: Count = Field(description="requests sent to a replica and not yet answered in full")
    held: Count = Field(description="requests waiting at the gateway for a replica")
    batch_in_flight: Count = Field(default=0, description="lines of batches sent to a replica, in no other number here")
    refused: Count = Field(
        default=0, description="requests refused for want of a replica, within the Retry-After they were told"
    )
    idle_seconds: Seconds | None = Field(
        default=None,
        description="since the last request for the fleet ended, 0 while one is here or may come again; null "
        "where there was none yet, and from a gateway that does not tell",
    )
    requests_total: Count
    failed_total: Count = Field(description="requests answered with an error made by the gateway itself")


class GatewayStats(BaseModel):
    """Answer of the gateway's ``GET /stats``."""

    model_config = _BOUNDED

    instance: str = Field(max_length=128)
    time: Seconds = Field(description="seconds since the epoch when this was taken")
    models: dict[Annotated[str, Field(max_length=LONGEST_NAME)], GatewayModelStats] = Field(
        default_factory=dict, max_length=MOST_MODELS
    )
    left_out: Count = Field(default=0, description="models that had no room beside these")
