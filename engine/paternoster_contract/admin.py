"""The engine's admin API: the documents it reads and writes.

On a port of its own, guarded by ``Authorization: Bearer <key>`` when the engine was started with admin keys.
"""

from pydantic import BaseModel, ConfigDict, Field


class LiveConfig(BaseModel):
    """Answer of ``GET`` and ``PATCH /admin/config``."""

    capacity: int = Field(ge=1, description="max_num_seqs at start: sizes buffers, fixed for the life of the process")
    live_cap: int = Field(ge=1, description="how many sequences may run now, 1..capacity")
    draining: bool = Field(description="true once the engine admits no more requests")


class LiveConfigPatch(BaseModel):
    """Body of ``PATCH /admin/config``.

    Lowering ``live_cap`` lets running sequences finish and never preempts; raising it acts on the next step.
    """

    model_config = ConfigDict(extra="forbid")

    live_cap: int = Field(ge=1)


class ResetPrefixCacheResult(BaseModel):
    """Answer of ``POST /admin/reset-prefix-cache``."""

    blocks_freed: int = Field(ge=0)
