"""The engine's admin API: the documents it reads and writes.

On a port of its own, guarded by ``Authorization: Bearer <key>`` when the engine was started with admin keys.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

ADAPTER_DIGEST = r"^sha256:[0-9a-f]{64}$"
"""Pattern of the SHA-256 of an adapter's file of weights."""
LONGEST_QUEUE_MILLISECONDS = 86_400_000
"""The largest limit on the time in an engine's queue: a day."""


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
    max_queue_milliseconds: int = Field(
        default=0, ge=0, description="a request that would wait longer than this is refused with 503; 0: none is"
    )
    draining: bool = Field(description="true once the engine admits no more requests")


class LoadLoraAdapter(BaseModel):
    """Body of ``POST /v1/load_lora_adapter``, as vLLM's."""

    lora_name: str = Field(description="what clients name as their model")
    lora_path: str = Field(
        description="folder that PEFT wrote, or its file of weights, where the engine runs; or the address of a folder "
        "that the engine fetches: hf://, s3://, gs://, oci-archive:// or oci-layout://, and file:///"
    )
    load_inplace: bool = Field(default=False, description="whether a name that is there already gets this adapter")
    is_3d_lora_weight: Literal[False] = Field(default=False, description="of experts, which have no adapters")
    lora_digest: str | None = Field(
        default=None, pattern=ADAPTER_DIGEST, description="what its file of weights must hash to, sha256:..."
    )
    lora_version: str = Field(default="", max_length=64, description="reported in /stats with what came of the load")
    wait: bool = Field(
        default=True, description="false: answered at once; /stats reports what came of it, and the last load counts"
    )


class UnloadLoraAdapter(BaseModel):
    """Body of ``POST /v1/unload_lora_adapter``, as vLLM's."""

    lora_name: str
    lora_int_id: int | None = Field(default=None, description="ignored: names are enough")


class LiveConfigPatch(BaseModel):
    """Body of ``PATCH /admin/config``.

    Lowering ``live_cap`` lets running sequences finish and never preempts; raising it acts on the next step, as any
    change of ``token_budget`` does. ``max_queue_milliseconds`` counts for requests that come from then on. What is left
    out stays as it is.
    """

    model_config = ConfigDict(extra="forbid")

    live_cap: int | None = Field(default=None, ge=1)
    token_budget: int | None = Field(default=None, ge=1)
    max_queue_milliseconds: int | None = Field(default=None, ge=0, le=LONGEST_QUEUE_MILLISECONDS)

    @model_validator(mode="after")
    def _check_fields(self) -> "LiveConfigPatch":
        if not self.model_dump(exclude_none=True):
            raise ValueError("must have live_cap, token_budget or max_queue_milliseconds")
        return self


class ResetPrefixCacheResult(BaseModel):
    """Answer of ``POST /admin/reset-prefix-cache``."""

    blocks_freed: int = Field(ge=0)
