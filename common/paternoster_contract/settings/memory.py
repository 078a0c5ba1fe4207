"""The KV pool: its size, its blocks, and what becomes of them when it runs dry."""

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from paternoster_contract.flags import Settings
from paternoster_contract.quantity import QUANTITY, parse_quantity
from paternoster_contract.settings.removed import REMOVED_PREEMPTIONS, refuse_removed

PreemptionName = Literal["recompute", "swap"]
KVCacheDtypeName = Literal["auto", "int8", "fp8"]


def _parse_bytes(value: object) -> object:
    """Parse a Kubernetes quantity such as 512Mi, or the same with a B such as 512MiB, into bytes.

    Raises ``ValueError``.
    """
    if not isinstance(value, str):
        return value
    if re.search("[0-9](k|[KMGTPE]i?)B$", value):
        # Kubernetes writes the prefix k in lower case: 10KB is 10k.
        value = re.sub("K$", "k", value.removesuffix("B"))
    if not re.fullmatch(QUANTITY, value) or (number := parse_quantity(value)).denominator != 1:
        raise ValueError("must be whole bytes, as a number or a quantity such as 512Mi, 512MiB or 0.5GB")
    return int(number)


Bytes = Annotated[int, BeforeValidator(_parse_bytes)]


class KVCacheSettings(Settings):
    """Settings that the scheduler uses without changes."""

    block_size: int = Field(default=32, ge=1, le=1024, description="tokens per KV block")
    prefix_cache: bool = Field(default=True, description="serve repeated prompt prefixes from the KV pool")
    preemption: Annotated[PreemptionName, refuse_removed(REMOVED_PREEMPTIONS)] = Field(
        default="recompute",
        description="what becomes of a preempted request's blocks. recompute: dropped; swap: copied to host memory",
    )


class MemorySettings(KVCacheSettings):
    """With the bytes that its blocks are counted from."""

    kv_cache_memory: Bytes | None = Field(
        default=None,
        ge=0,
        description="bytes for the KV pool of all ranks, or a quantity such as 512Mi; 0, on CUDA: "
        "gpu-memory-utilization of what is free once the model has run its largest step (default: 0 on CUDA, 512Mi on "
        "CPUs)",
    )
    kv_cache_dtype: KVCacheDtypeName = Field(
        default="auto",
        description="what keys and values are kept in. auto: dtype; int8, fp8 (e4m3, on GPUs that have it): 8 bits and "
        "a scale for each token and head, so that about twice as many tokens fit",
    )
    gpu_memory_utilization: float = Field(
        default=0.9, gt=0, le=1, description="kv-cache-memory 0: share of the free memory that the KV pool takes"
    )
    watermark_percent: int = Field(default=1, ge=0, le=50, description="share of the KV pool kept free when admitting")
    swap_memory: Bytes = Field(
        default=268_435_456, ge=1, description="bytes of host memory to swap to, or a quantity such as 1Gi"
    )
