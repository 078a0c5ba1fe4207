"""What a measurement was made on, in words."""

import platform
from pathlib import Path

INSTRUCTION_SETS = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_bf16": "AVX-512 bf16",
    "avx512_vnni": "AVX-512 VNNI",
    "amx_bf16": "AMX bf16",
    "amx_int8": "AMX int8",
    "asimd": "NEON",
    "bf16": "NEON bf16",
    "sve": "SVE",
}
"""Instruction sets that matter for products of matrices, by the kernel's name in /proc/cpuinfo."""


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor as the kernel names it, or the architecture where it does not, and its instruction sets."""
    facts: dict[str, str] = {}
    try:
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    name = facts.get("model name") or platform.processor() or platform.machine()
    flags = set((facts.get("flags") or facts.get("Features") or "").split())
    sets = [text for flag, text in INSTRUCTION_SETS.items() if flag in flags]
    return f"{name} ({', '.join(sets)})" if sets else name
