"""What an engine and a gateway tell about themselves in one small document.

The operator reads these every few seconds from every replica, so they stay flat and cheap. Names that end
in ``_total`` only grow, from zero at ``started_at``; a changed ``instance`` means that they began anew.
"""

from enum import StrEnum

from pydantic import BaseModel, Field


class EngineState(StrEnum):
    """Where an engine is in its life."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"


class EngineStats(BaseModel):
    """Answer of the engine's ``GET /stats``."""

    instance: str = Field(description="random per process start: tells a counter reset from a slow minute")
    model: str
    state: EngineState
    started_at: float = Field(description="seconds since the epoch")
    time: float = Field(description="seconds since the epoch when this was taken")
    last_tick_age_seconds: float = Field(ge=0, description="age of the engine loop's last tick")

    capacity: int = Field(ge=1, description="max_num_seqs at start")
    live_cap: int = Field(ge=1, description="sequences that may run now")
    running: int = Field(ge=0, description="sequences that hold KV blocks")
    waiting: int = Field(ge=0, description="queued sequences, preempted ones included")

    kv_block_size: int = Field(ge=1, description="tokens per block")
    kv_blocks: int = Field(ge=1, description="blocks in the pool")
    kv_blocks_used: int = Field(ge=0, description="blocks that some request holds")
    kv_blocks_cached: int = Field(ge=0, description="blocks that no request holds and the prefix cache can still serve")
    kv_projected_peak: float = Field(
        ge=0, description="largest share of the pool the running requests can come to need; may exceed 1"
    )

    requests_total: int = Field(ge=0, description="requests admitted to the queue")
    requests_finished_total: int = Field(ge=0, description="requests that ended, whatever the reason")
    requests_rejected_total: int = Field(ge=0, description="requests refused before the queue")
    requests_preempted_total: int = Field(ge=0, description="distinct requests preempted at least once")
    preemptions_total: int = Field(ge=0, description="preemption events")
    prompt_tokens_total: int = Field(ge=0)
    cached_prompt_tokens_total: int = Field(ge=0, description="prompt tokens served by the prefix cache")
    generation_tokens_total: int = Field(ge=0)
    computed_tokens_total: int = Field(ge=0, description="tokens that went through the model, recomputed ones included")
    recomputed_tokens_total: int = Field(ge=0, description="tokens computed again because of a preemption")
    queue_seconds_total: float = Field(ge=0, description="sum over requests of arrival to first scheduling")
    queue_count_total: int = Field(ge=0, description="requests counted in queue_seconds_total")
    first_token_seconds_total: float = Field(default=0, ge=0, description="sum over requests of arrival to first token")
    first_token_count_total: int = Field(default=0, ge=0, description="requests counted in first_token_seconds_total")
    inter_token_seconds_total: float = Field(
        default=0, ge=0, description="sum over output tokens but the first of the time since the one before"
    )
    inter_token_count_total: int = Field(default=0, ge=0, description="tokens counted in inter_token_seconds_total")

    @property
    def kv_usage(self) -> float:
        """Share of the KV pool that requests hold, 0..1."""
        return self.kv_blocks_used / self.kv_blocks


class GatewayModelStats(BaseModel):
    """What the gateway knows of one served model."""

    fleet: str = Field(default="", description="uid of the LLMDeployment that the gateway's routing table names for it")
    in_flight: int = Field(ge=0, description="requests sent to a replica and not yet answered in full")
    held: int = Field(ge=0, description="requests waiting at the gateway for a replica")
    refused: int = Field(
        default=0, ge=0, description="requests refused for want of a replica, within the Retry-After they were told"
    )
    requests_total: int = Field(ge=0)
    failed_total: int = Field(ge=0, description="requests answered with an error made by the gateway itself")


class GatewayStats(BaseModel):
    """Answer of the gateway's ``GET /stats``."""

    instance: str
    time: float = Field(description="seconds since the epoch when this was taken")
    models: dict[str, GatewayModelStats] = Field(default_factory=dict)
