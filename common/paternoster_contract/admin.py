"""The engine's admin API: the documents it reads and writes.

On a port of its own, guarded by ``Authorization: Bearer <key>`` when the engine was started with admin keys.
"""

from pydantic import BaseModel, ConfigDict, Field, model_validator


class LiveConfig(BaseModel):
    """Answer of ``GET`` and ``PATCH /admin/config``."""

    capacity: int = Field(ge=1, description="max_num_seqs at start: sizes buffers, fixed for the life of the process")
    live_cap: int = Field(ge=1, description="how many sequences may run now, 1..capacity")
    max_batched_tokens: int = Field(
        default=0, ge=0, description="tokens that a step can ever hold, fixed for the life of the process"
    )
    token_budget: int = Field(
        default=0,
        ge=0,
        description="tokens that a step may hold now, 1..max_batched_tokens; never less than one for each "
        "sequence that runs",
    )
    draining: bool = Field(description="true once the engine admits no more requests")


class LiveConfigPatch(BaseModel):
    """Body of ``PATCH /admin/config``.

    Lowering ``live_cap`` lets running sequences finish and never preempts; raising it acts on the next step, as any
    change of ``token_budget`` does. What is left out stays as it is.
    """

    model_config = ConfigDict(extra="forbid")

    live_cap: int | None = Field(default=None, ge=1)
    token_budget: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _some(self) -> "LiveConfigPatch":
        if self.live_cap is None and self.token_budget is None:
            raise ValueError("must have live_cap, token_budget or both")
        return self


class ResetPrefixCacheResult(BaseModel):
    """Answer of ``POST /admin/reset-prefix-cache``."""

    blocks_freed: int = Field(ge=0)
