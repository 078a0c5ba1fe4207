"""The KV pool: its size, its blocks, and what becomes of them when it runs dry."""

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from paternoster_contract.flags import Settings
from paternoster_contract.quantity import QUANTITY, ByteQuantity, Quantity, parse_quantity
from paternoster_contract.settings.removed import REMOVED_PREEMPTIONS, refuse_removed
from paternoster_contract.settings.row import NOT_PASSED, OtherEngines, SpecField, Translation, refuse_rest

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


# fmt: off
def _count_bytes(quantity: str) -> int:
    return int(parse_quantity(quantity))


class KVCacheSettings(Settings):
    """Settings that the scheduler uses without changes."""

    block_size: Annotated[int,
        SpecField("engine.blockSize", "Tokens per KV block; 16, 32 or 64 on GPUs. When unset 32, and of another engine "
                  "what it has by itself.", default=None),
        OtherEngines(Translation("block-size", always=True), Translation("page-size", always=True),
                     refuse_rest(NOT_PASSED.refused, None, 32))] = Field(
        default=32, ge=1, le=1024, description="tokens per KV block")
    prefix_cache: Annotated[bool, SpecField("engine.prefixCache"),
        OtherEngines(
            Translation("no-enable-prefix-caching", other_flags=("enable-prefix-caching", "disable-prefix-caching")),
            Translation("disable-radix-cache"),
            Translation(note="whether the server has one is the manifest's to say: it passes nothing on"))] = Field(
        default=True, description="Serve repeated prompt prefixes from the KV pool.")
    preemption: Annotated[PreemptionName, refuse_removed(REMOVED_PREEMPTIONS), SpecField("engine.memory.preemption"),
        OtherEngines(refuse_rest("vLLM computes again"), refuse_rest("SGLang computes again"))] = Field(
        default="recompute",
        description="What becomes of a preempted request's blocks: recompute, dropped; swap, copied to memory of the "
        "host.")


class MemorySettings(KVCacheSettings):
    """With the bytes that its blocks are counted from."""

    kv_cache_memory: Annotated[Bytes | None,
        SpecField("engine.kvCacheMemory", "Memory for the KV pool of each engine, on all its GPUs together; when unset "
                  "512Mi on CPUs and, as with 0, most of what the model leaves free on GPUs.", Quantity | None,
                  to_setting=_count_bytes),
        OtherEngines(
            Translation("kv-cache-memory-bytes", lambda size: size or None),
            refuse_rest("SGLang sizes it by a share: use engine.runtime.args, as --mem-fraction-static"))] = Field(
        default=None, ge=0, description="bytes for the KV pool of all ranks, or a quantity such as 512Mi; 0, on CUDA: "
        "gpu-memory-utilization of what is free once the model has run its largest step (default: 0 on CUDA, 512Mi on "
        "CPUs)")
    kv_cache_dtype: Annotated[KVCacheDtypeName, SpecField("engine.kvCacheDtype"),
        OtherEngines(
            refuse_rest("vLLM has no int8 with a scale for each token and head", "auto", "fp8", flag="kv-cache-dtype"),
            refuse_rest("SGLang has no int8 with a scale for each token and head", "auto", "fp8", flag="kv-cache-dtype",
                   value={"fp8": "fp8_e4m3"}.get))] = Field(
        default="auto",
        description="What keys and values are kept in: auto, the number format; int8 and, on GPUs that have it, fp8 "
        "(e4m3), 8 bits with a scale for each token and head, so that about twice as many tokens fit.")
    gpu_memory_utilization: Annotated[float,
        SpecField("engine.memory.gpuUtilizationPercent", "Share of the memory that the model leaves free on GPUs that "
                  "the KV pool takes, where engine.kvCacheMemory is unset or 0.", Annotated[int, Field(ge=1, le=100)],
                  default=90, to_setting=lambda percent: percent / 100),
        OtherEngines(
            refuse_rest("vLLM's share is of all memory of a GPU, not of what the model leaves free: use "
                   "engine.runtime.args, as --gpu-memory-utilization"),
            refuse_rest("use engine.runtime.args, as --mem-fraction-static"))] = Field(
        default=0.9, gt=0, le=1, description="kv-cache-memory 0: share of the free memory that the KV pool takes")
    watermark_percent: Annotated[int, SpecField("engine.memory.watermarkPercent"),
        OtherEngines(Translation("watermark", lambda percent: f"{percent / 100:g}", always=True))] = Field(
        default=1, ge=0, le=50, description="Share of the KV pool kept free when admitting.")
    max_adapter_memory: Annotated[Bytes,
        SpecField("engine.memory.maxAdapterMemory", "Memory for adapters (LoRA) of each engine; 0 for none.",
                  Quantity | None, default=None, to_setting=_count_bytes),
        OtherEngines(refuse_rest("vLLM counts adapters: use engine.runtime.args, as --max-loras"),
                     refuse_rest("SGLang counts adapters: use engine.runtime.args, as --max-loras-per-batch"))] = Field(
        default=0, ge=0, description="bytes that adapters (LoRA) may take, or a quantity such as 1Gi; 0 for none")
    swap_memory: Annotated[Bytes,
        SpecField("engine.memory.swapMemory", "Memory of the host to swap to.", ByteQuantity, default="256Mi",
                  to_setting=_count_bytes),
        OtherEngines(refuse_rest("vLLM does not swap"), refuse_rest("SGLang does not swap"))] = Field(
        default=268_435_456, ge=1, description="bytes of host memory to swap to, or a quantity such as 1Gi")
