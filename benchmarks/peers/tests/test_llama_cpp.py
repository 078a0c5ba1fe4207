"""How llama.cpp's server is built, with stand-ins for cmake and ninja, and what it is started with."""

import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from paternoster_traces.workload import STANDARD_OUTPUT, STANDARD_PROMPT
from peers.systems import llama_cpp, llama_cpp_build
from peers.systems.environment import SetUpError

CPUINFO = "processor : 0\nflags\t\t: fpu avx512_bf16 amx_tile\nbugs : x\n\nprocessor : 1\nflags\t\t: fpu\n"


def archive(folder: Path, names: Sequence[str]) -> Path:
    path = folder / "package-1.tar.gz"
    with tarfile.open(path, "w:gz") as made:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 2
            made.addfile(member, io.BytesIO(b"hi"))
    return path


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with the source in it, and programs that write their arguments into the file that is returned."""
    monkeypatch.setenv("PATERNOSTER_CACHE", str(tmp_path / "cache"))
    binaries, calls = tmp_path / "bin", tmp_path / "calls"
    binaries.mkdir()
    for name in (*llama_cpp_build.COMPILERS.values(), "cmake", "ninja"):
        (binaries / name).write_text(f'#!/bin/sh\necho "{name} $@" >> {calls}\nexit ${{STATUS:-0}}\n')
        (binaries / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    llama_cpp_build.converter().parent.mkdir(parents=True)
    llama_cpp_build.converter().touch()
    return calls


def test_it_is_built_once(programs: Path) -> None:
    llama_cpp_build.build()
    configured, compiled = programs.read_text().splitlines()
    assert configured.startswith("cmake -G Ninja")
    assert "-DCMAKE_CXX_COMPILER=clang++-19" in configured.split()
    assert compiled.startswith("ninja")
    assert compiled.endswith("llama-server")
    llama_cpp_build.build()
    assert len(programs.read_text().splitlines()) == 2


def test_it_is_built_again_with_other_options(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llama_cpp_build.build()
    monkeypatch.setitem(llama_cpp_build.OPTIONS, "GGML_OPENMP", "OFF")
    llama_cpp_build.build()
    assert len(programs.read_text().splitlines()) == 4


def test_a_build_that_failed_is_no_build(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATUS", "3")
    with pytest.raises(SetUpError, match="llama-cpp: configure: exit status 3"):
        llama_cpp_build.build()
    monkeypatch.delenv("STATUS")
    llama_cpp_build.build()
    assert [line.split()[0] for line in programs.read_text().splitlines()] == ["cmake", "cmake", "ninja"]


def test_programs_that_are_missing_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    llama_cpp_build.ensure("sh")
    with pytest.raises(
        SetUpError, match=r"no-such-compiler: must be on PATH.*clang-19 libomp-19-dev cmake ninja-build"
    ):
        llama_cpp_build.ensure("sh", "no-such-compiler")


def test_the_source_archive_is_pinned_by_its_digest() -> None:
    (line,) = llama_cpp_build.PINNED.read_text().splitlines()
    pin, checksum = line.split()
    assert pin == f"{llama_cpp_build.PACKAGE}=={llama_cpp_build.VERSION}"
    assert len(checksum.removeprefix("--hash=sha256:")) == 64


def test_a_binary_is_for_the_instruction_sets_of_one_cpu() -> None:
    flags = llama_cpp_build.cpu_flags(CPUINFO)
    assert flags == "fpu avx512_bf16 amx_tile"
    assert llama_cpp_build.cpu_flags("processor : 0\n") == ""
    assert llama_cpp_build.digest(flags) == llama_cpp_build.digest(flags) != llama_cpp_build.digest("fpu")


def test_only_the_folder_of_llama_cpp_is_unpacked(tmp_path: Path) -> None:
    source = tmp_path / "source"
    llama_cpp_build.unpack(archive(tmp_path, ["package-1/setup.py", "package-1/llama.cpp/src/a.cpp"]), source)
    assert [path.relative_to(source).as_posix() for path in source.rglob("*.*")] == ["src/a.cpp"]
    assert {path.name for path in tmp_path.iterdir()} == {"source", "package-1.tar.gz"}


@pytest.mark.parametrize(
    ("names", "error"),
    [(["package-1/setup.py"], SetUpError), (["package-1/llama.cpp/a", "../outside"], tarfile.FilterError)],
)
def test_an_archive_of_another_kind_leaves_nothing(tmp_path: Path, names: list[str], error: type[Exception]) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(error):
        llama_cpp_build.unpack(archive(tmp_path, names), inside / "source")
    assert list(inside.iterdir()) == []
    assert not (tmp_path / "outside").exists()


def test_a_slot_holds_the_longest_request_of_the_workload() -> None:
    assert STANDARD_PROMPT + max(STANDARD_OUTPUT) < llama_cpp.SLOT_TOKENS
