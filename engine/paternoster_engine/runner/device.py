"""What this process may compute with: device, number format and threads."""

import os
from pathlib import Path

import torch

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_kernels.cpu import instruction_sets
from paternoster_kernels.cpu.library import load_library

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
KV_DTYPES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}


def resolve_device(name: str) -> torch.device:
    """``auto`` is cuda when there is one; raises :class:`UnsupportedModelError` for a device that is absent."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise UnsupportedModelError("device is 'cuda', but torch sees no CUDA device here: use 'cpu' or 'auto'")
    return torch.device(name)


def rank_device(device: torch.device, rank: int, size: int) -> torch.device:
    """The device of one of ``size`` ranks; raises :class:`UnsupportedModelError` where there are fewer devices."""
    if device.type != "cuda" or size == 1:
        return device
    if size > torch.cuda.device_count():
        raise UnsupportedModelError(
            f"tensor_parallel_size is {size}: must be at most {torch.cuda.device_count()}, the CUDA devices here"
        )
    return torch.device("cuda", rank)


def device_fault(device: torch.device) -> str | None:
    """Why ``device`` computes nothing any more, None while it does.

    An error inside a CUDA kernel is raised by every call after it, until the process ends.
    """
    if device.type != "cuda":
        return None
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as lost:
        return f"device {device} is lost: {lost}"
    return None


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """``auto`` is bfloat16 where ``device`` or the native CPU operations multiply it, float32 elsewhere."""
    if name != "auto":
        return DTYPES[name]
    native = torch.cuda.is_bf16_supported(including_emulation=False) if device.type == "cuda" else _cpu_has_bfloat16()
    return torch.bfloat16 if native else torch.float32


def resolve_kv_dtype(name: str, dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """What keys and values are kept in, ``auto`` as ``dtype``; raises :class:`UnsupportedModelError`."""
    if name == "fp8" and not _has_fp8(device):
        raise UnsupportedModelError(
            f"kv_cache_dtype is 'fp8': must be 'auto' or 'int8' on {device.type}, unless that is NVIDIA's and its "
            "compute capability 8.9 or more"
        )
    return KV_DTYPES.get(name, dtype)


def _has_fp8(device: torch.device) -> bool:
    """Whether it converts e4m3 by itself; AMD's has another bias."""
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 9)


def _cpu_has_bfloat16() -> bool:
    if load_library() is not None:
        return True
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))


def multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for it that are faster than those for float32."""
    chosen = instruction_sets.choose_instructions()
    return chosen is not None and chosen.name in ("amx", "avx512_bf16")


def rank_threads(threads: int | None, size: int) -> int:
    """Compute threads of each of ``size`` ranks, which share ``threads``, or the CPUs of this process."""
    return max(1, (threads or available_cpus()) // size)


def available_cpus(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """CPUs this process may use at once: its affinity, capped by the cgroup's quota (v2 or v1)."""
    allowed = len(os.sched_getaffinity(0))
    quota = _cgroup_quota(cgroup)
    return allowed if quota is None else max(1, min(allowed, round(quota)))


def _cgroup_quota(cgroup: Path) -> float | None:
    unified, v1 = cgroup / "cpu.max", cgroup / "cpu"
    try:
        if unified.exists():
            quota, period = unified.read_text().split()
        else:
            quota, period = ((v1 / f"cpu.cfs_{part}_us").read_text().strip() for part in ("quota", "period"))
    except OSError:
        return None
    return None if quota in ("max", "-1") else int(quota) / int(period)
