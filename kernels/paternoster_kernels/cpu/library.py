"""The C++ sources made into a shared library, once a machine, and its functions.

There is one for each instruction set. A library in this folder wins, so that an image without a compiler can carry all
that its kind of machine may need: ``python -m paternoster_kernels.cpu.library`` puts them there. Otherwise the one that
is needed is compiled into the user's cache.
"""

import ctypes
import fcntl
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from paternoster_kernels.cpu import instruction_sets
from paternoster_kernels.cpu.instruction_sets import InstructionSet

log = logging.getLogger(__name__)

COMPILERS = ("g++", "clang++")
FLAGS = ("-O3", "-std=c++17", "-ffp-contract=fast", "-fopenmp", "-fPIC", "-shared", "-w")
COMPILE_SECONDS = 600
"""On the clock: 18 s of a core's time took three minutes where many others had two cores, too."""
SOURCES = Path(__file__).parent / "native"
_P, _N, _F, _T = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int
SIGNATURES: dict[str, tuple[type, ...]] = {
    "add_lora": (_P, _P, _T, _P, _N, _N, _P, _N, _T, _T),
    "argmax": (_P, _P, _N, _N, _T),
    "decoder_layers": (_P, _P, _P, _P, _T),
    "gated_mul": (_P, _P, _N, _N, _T, _T),
    "int8_matmul": (_P, _P, _P, _P, _P, _P, _N, _N, _N, _T),
    "kv_write": (_P, _N, _P, _T, _P, _N, _N, _N, _N, _T),
    "norm_parts": (_P, _P, _N, _N, _N, _N, _F, _T),
    "packed_matmul": (_P, _P, _P, _P, _P, _N, _N, _N, _T, _T),
    "packed_rows": (_P, _P, _P, _P, _N, _N, _T),
    "paged_attention": (_P, _P, _N, _P, _T, _N, _N, _N, _N, _P, _P, _P, _N, _N, _F, _N, _F, _P, _T),
    "rms_norm": (_P, _P, _P, _P, _N, _N, _F, _T),
    "rope_kv_write": (_P, _P, _P, _P, _T, _P, _N, _N, _N, _N, _N, _N, _T),
    "sample": (_P, _P, _T, _P, _P, _P, _P, _P, _P, _P, _N, _P, _N, _N, _T),
}
"""Arguments of each function, as ``native`` declares them; the last is the number of threads. None returns anything."""


@cache
def load_library() -> ctypes.CDLL | None:
    """The library, or None where its operations cannot run; which it is, or why there is none, is logged once.

    Raises ``ValueError`` where the environment names an instruction set that the processor has not.
    """
    chosen = instruction_sets.choose_instructions()
    if chosen is None:
        log.info("no native CPU operations here: they run in plain torch, which is slower")
        return None
    name = library_name(chosen)
    carried, folder = Path(__file__).parent / name, cache_folder()
    try:
        path = carried if carried.exists() else build_once(folder / name, lambda: compile_library(folder, chosen))
        found = ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("native CPU operations are not to be had, so plain torch runs instead, which is slower: %s", error)
        return None
    has = ", ".join(able.name for able in instruction_sets.find_available())
    log.info("native CPU operations for %s; this processor has %s", chosen.name, has)
    for name, arguments in SIGNATURES.items():
        getattr(found, name).argtypes = arguments
        getattr(found, name).restype = None
    return found


def require_library() -> ctypes.CDLL:
    """The library, for operations that the registry picks only where it can run; raises ``RuntimeError`` elsewhere."""
    found = load_library()
    if found is None:
        raise RuntimeError("native CPU operations cannot run here: see paternoster_kernels.registry.pick_kernel")
    return found


def compile_library(folder: Path, instructions: InstructionSet) -> Path:
    """Compile into ``folder``; raises ``OSError`` or ``subprocess.SubprocessError`` when that fails."""
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        raise OSError(f"no C++ compiler: looked for {', '.join(COMPILERS)} on PATH")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / library_name(instructions)
    # Written beside and moved: who looks for it sees all of it or nothing.
    with tempfile.TemporaryDirectory(dir=folder) as made:
        partial = Path(made) / target.name
        command = [compiler, *FLAGS, *instructions.flags, "-o", str(partial), *map(str, sorted(SOURCES.glob("*.cpp")))]
        # Its own files, too: one that is killed leaves them.
        env = {**os.environ, "TMPDIR": made}
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False, env=env)
        if done.returncode != 0:
            raise OSError(f"{compiler} exited with {done.returncode}: {done.stderr.strip()[-500:]}")
        with partial.open("rb") as written:
            # A name that a loss of power leaves with half a library would be believed from then on.
            os.fsync(written.fileno())
        partial.replace(target)
    return target


def library_name(instructions: InstructionSet) -> str:
    """Name of the library's file; another for other sources."""
    digest = hashlib.sha256(" ".join((*FLAGS, *instructions.flags)).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return f"paternoster_{instructions.name}_{digest.hexdigest()[:16]}.so"


def build_once(path: Path, make: Callable[[], object]) -> Path:
    """``path``, which ``make`` writes where it is not there; of processes that start together one makes it.

    A lock of each ``path`` alone, so that libraries of other instruction sets are compiled at the same time.
    """
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    with lock.open("w") as file:
        # Where the file system has no locks, each makes its own.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            if not path.exists():
                make()
        finally:
            # Who opened it before waits for it still, and finds ``path``; after a failure some may make theirs at once.
            lock.unlink(missing_ok=True)
    return path


def cache_folder() -> Path:
    """The user's."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "paternoster" / "kernels"


if __name__ == "__main__":
    for instructions in instruction_sets.of_machine(platform.machine()):
        print(compile_library(Path(__file__).parent, instructions))  # noqa: T201 - a build of an image shows it
