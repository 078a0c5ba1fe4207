"""The instruction sets that the C++ is compiled for, and which of them this machine's processor has."""

import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ENV = "PATERNOSTER_CPU_ISA"
"""Names one of :data:`SETS`, to run a lesser one than the best that the processor has; ``none`` is plain torch."""
NONE = "none"

_AVX2 = ("avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_BF16 = (*_AVX512, "avx512_vnni", "avx512_bf16")
_AMX = ("amx_tile", "amx_bf16", "amx_int8")
_ARCH_REQ_XCOMP_PERM, _XFEATURE_TILE_DATA, _SYS_ARCH_PRCTL = 0x1023, 18, 158


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """``needs``: names in ``/proc/cpuinfo``; ``machine``: what ``uname -m`` says."""

    name: str
    machine: str
    needs: tuple[str, ...]
    flags: tuple[str, ...]
    """The compiler's."""


def _x86_set(name: str, needs: tuple[str, ...]) -> InstructionSet:
    return InstructionSet(name, "x86_64", needs, tuple("-m" + need.replace("512_", "512") for need in needs))


SETS = (
    InstructionSet("amx", "x86_64", (*_BF16, *_AMX), ("-march=sapphirerapids",)),
    _x86_set("avx512_bf16", _BF16),
    _x86_set("avx512_vnni", (*_AVX512, "avx512_vnni")),
    _x86_set("avx512", _AVX512),
    _x86_set("avx2", _AVX2),
    InstructionSet("neon_bf16", "aarch64", ("asimd", "asimddp", "bf16"), ("-march=armv8.2-a+bf16+dotprod",)),
    InstructionSet("neon", "aarch64", ("asimd",), ("-march=armv8-a",)),
)
"""Instruction sets of each kind of machine, the best first."""


def of_machine(machine: str) -> list[InstructionSet]:
    """All that a machine of this kind may have."""
    return [found for found in SETS if found.machine == machine]


@cache
def find_available() -> tuple[InstructionSet, ...]:
    """Instruction sets that this process may use, the best first."""
    if sys.platform != "linux":
        return ()
    processor = first_processor()
    has = set((processor.get("flags") or processor.get("Features") or "").split())
    able = [
        found
        for found in of_machine(platform.machine())
        if has.issuperset(found.needs) and (found.name != "amx" or _tiles_allowed())
    ]
    # Intel's sums pairs of bfloat16 numbers at half the speed of two float32 products, and slower than AVX2's.
    slow = "avx512_bf16" if processor.get("vendor_id") == "GenuineIntel" else None
    return tuple(sorted(able, key=lambda found: found.name == slow))


def first_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """What the kernel says of it, by its names."""
    try:
        lines = cpuinfo.read_text().split("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def choose_instructions() -> InstructionSet | None:
    """The one to run: the best, or what the environment names; None for plain torch.

    Raises ``ValueError`` where the environment names one that this processor has not.
    """
    able = find_available()
    name = os.environ.get(ENV)
    if not name:
        return able[0] if able else None
    if name == NONE:
        return None
    for found in able:
        if found.name == name:
            return found
    names = ", ".join([found.name for found in able] + [NONE])
    raise ValueError(f"${ENV} is {name!r}: must be one of {names}, the instruction sets that this processor has")


def _tiles_allowed() -> bool:
    """The kernel gives leave to use AMX's tiles to processes that ask."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_TILE_DATA) == 0)
