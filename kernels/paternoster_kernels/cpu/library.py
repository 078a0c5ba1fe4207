"""The C++ sources made into a shared library, once a machine, and its functions.

A library in this folder wins, so that an image without a compiler can carry one (``python -m
paternoster_kernels.cpu.library`` puts it there). Otherwise it is compiled into the user's cache when first needed.
"""

import ctypes
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch

log = logging.getLogger(__name__)

DISABLE_ENV = "PATERNOSTER_NO_NATIVE_KERNELS"
"""Any value keeps the CPU on the reference."""
COMPILERS = ("g++", "clang++")
FLAGS = ("-O3", "-march=sapphirerapids", "-std=c++17", "-fopenmp", "-fPIC", "-shared", "-w")
COMPILE_SECONDS = 120
SOURCES = Path(__file__).parent / "native"
_P, _N, _F, _T = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int
SIGNATURES: dict[str, tuple[type, ...]] = {
    "argmax": (_P, _P, _N, _N, _T),
    "decoder_layers": (_P, _P, _P, _P, _T),
    "int8_matmul": (_P, _P, _P, _P, _P, _P, _N, _N, _N, _T),
    "kv_write": (_P, _N, _P, _P, _N, _N, _N, _N, _T),
    "packed_matmul": (_P, _P, _P, _N, _N, _N, _T, _T),
    "paged_attention": (_P, _P, _N, _P, _N, _N, _N, _N, _P, _P, _P, _N, _N, _F, _T),
    "rms_norm": (_P, _P, _P, _P, _N, _N, _F, _T),
    "rope_kv_write": (_P, _P, _P, _P, _P, _N, _N, _N, _N, _N, _T),
    "silu_mul": (_P, _P, _N, _N, _T),
}
"""Arguments of each function, as ``native`` declares them; the last is the number of threads. None returns anything."""
_ARCH_REQ_XCOMP_PERM, _XFEATURE_TILE_DATA, _SYS_ARCH_PRCTL = 0x1023, 18, 158


@cache
def library() -> ctypes.CDLL | None:
    """The library, or None where its operations cannot run; the reason is logged once."""
    if os.environ.get(DISABLE_ENV):
        return None
    if not _cpu_is_able():
        log.info("no AMX for bfloat16 here: operations run in plain torch")
        return None
    path = next((folder / _name() for folder in (Path(__file__).parent, _cache()) if (folder / _name()).exists()), None)
    try:
        found = ctypes.CDLL(str(path or compile_library(_cache())))
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("native CPU operations are not to be had, so plain torch runs instead: %s", error)
        return None
    for name, arguments in SIGNATURES.items():
        getattr(found, name).argtypes = arguments
        getattr(found, name).restype = None
    return found


def compile_library(folder: Path) -> Path:
    """Compile into ``folder``; raises ``OSError`` or ``subprocess.SubprocessError`` when that fails."""
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        raise OSError(f"no C++ compiler: looked for {', '.join(COMPILERS)} on PATH")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / _name()
    # Written beside and moved, as several engines may start at once.
    with tempfile.TemporaryDirectory(dir=folder) as made:
        partial = Path(made) / target.name
        command = [compiler, *FLAGS, "-o", str(partial), *map(str, sorted(SOURCES.glob("*.cpp")))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
        if done.returncode != 0:
            raise OSError(f"{compiler} exited with {done.returncode}: {done.stderr.strip()[-500:]}")
        partial.replace(target)
    return target


def _name() -> str:
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return f"paternoster_amx_{digest.hexdigest()[:16]}.so"


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "paternoster" / "kernels"


def _cpu_is_able() -> bool:
    """AMX and AVX-512 with bfloat16, and the kernel's leave to use the tiles."""
    if sys.platform != "linux":
        return False
    able = torch.cpu.get_capabilities()
    if not (able.get("amx_bf16") and able.get("avx512_bf16")):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_TILE_DATA) == 0)


if __name__ == "__main__":
    print(compile_library(Path(__file__).parent))
