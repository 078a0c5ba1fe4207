"""Finding, compiling and doing without the C++ library."""

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from unittest.mock import Mock

import pytest

from paternoster_kernels.cpu import instruction_sets
from paternoster_kernels.cpu import library as module
from paternoster_kernels.cpu.library import COMPILERS, SIGNATURES, build_once, compile_library, load_library

compiles = pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="no C++ compiler")


@pytest.fixture(autouse=True)
def _looked_for_anew() -> Iterator[None]:
    load_library.cache_clear()
    yield
    load_library.cache_clear()


@pytest.fixture
def able() -> None:
    if not instruction_sets.find_available():
        pytest.skip("none of the instruction sets that there are operations for")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that do nothing, for what does not look into them."""
    sources = tmp_path / "native"
    sources.mkdir()
    functions = "".join(f'extern "C" void {name}() {{}}\n' for name in SIGNATURES)
    (sources / "small.cpp").write_text(functions)
    monkeypatch.setattr(module, "SOURCES", sources)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@compiles
@pytest.mark.usefixtures("able", "small")
def test_compiles_once_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_library()
    assert found is not None
    [made] = (tmp_path / "paternoster" / "kernels").iterdir()
    load_library.cache_clear()
    monkeypatch.setenv("PATH", "")
    again = load_library()
    assert again is not None
    assert again._name == str(made)


@compiles
@pytest.mark.usefixtures("able", "small")
def test_it_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a loss of power leaves a name with half a library, which is never compiled again."""
    folder, instructions = tmp_path / "out", instruction_sets.find_available()[0]
    target, seen = folder / module.library_name(instructions), []
    synced = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (seen.append((os.fstat(file).st_size, target.exists())), synced(file))
    )
    compile_library(folder, instructions)
    assert seen == [(target.stat().st_size, False)]


def test_of_those_that_start_together_one_compiles(tmp_path: Path) -> None:
    target, made = tmp_path / "made" / "library.so", []

    def compile_it() -> None:
        made.append(target)
        # In which the others look, too.
        time.sleep(0.2)
        target.touch()

    with ThreadPoolExecutor(4) as pool:
        builds = [pool.submit(build_once, target, compile_it) for _ in range(4)]
    assert {each.result() for each in builds} == {target}
    assert made == [target]


def test_another_is_made_meanwhile(tmp_path: Path) -> None:
    """Each of the two waits until the other one is under way."""
    together = Barrier(2, timeout=60)

    def make(target: Path) -> None:
        together.wait()
        target.touch()

    targets = [tmp_path / f"{name}.so" for name in ("avx2", "avx512")]
    with ThreadPoolExecutor(2) as pool:
        builds = [pool.submit(build_once, target, partial(make, target)) for target in targets]
    assert [each.result() for each in builds] == targets
    assert sorted(tmp_path.iterdir()) == targets


def test_after_one_that_failed_the_next_tries(tmp_path: Path) -> None:
    target = tmp_path / "library.so"
    with pytest.raises(OSError, match="no compiler"):
        build_once(target, Mock(side_effect=OSError("no compiler")))
    assert not any(tmp_path.iterdir())
    build_once(target, target.touch)
    assert [*tmp_path.iterdir()] == [target]


@compiles
@pytest.mark.usefixtures("able", "small")
def test_says_which_it_runs_and_which_there_are(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    able = [found.name for found in instruction_sets.find_available()]
    monkeypatch.setenv(instruction_sets.ENV, able[-1])
    caplog.set_level("INFO", module.__name__)
    assert load_library() is not None
    assert caplog.messages == [f"native CPU operations for {able[-1]}; this processor has {', '.join(able)}"]


@compiles
@pytest.mark.usefixtures("able")
def test_an_image_carries_all(tmp_path: Path) -> None:
    """Made beside the sources, as the image's build does, they serve where nothing can be compiled or written."""
    package = Path(module.__file__).parents[1]
    shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.cpp"))
    sources = tmp_path / package.name / "cpu" / "native"
    (sources / "small.cpp").write_text("".join(f'extern "C" void {name}() {{}}\n' for name in SIGNATURES))
    built = _python(tmp_path, "-m", module.__name__).splitlines()
    assert len(built) == len(instruction_sets.of_machine(platform.machine()))
    assert {Path(path).parent for path in built} == {tmp_path / package.name / "cpu"}
    script = f"from {module.__name__} import load_library; print(load_library()._name)"
    able = instruction_sets.find_available()[-1].name
    environment = {instruction_sets.ENV: able, "PATH": "", "XDG_CACHE_HOME": "/dev/null"}
    [carried] = [path for path in built if re.search(rf"paternoster_{able}_[0-9a-f]{{16}}\.so", path)]
    assert _python(tmp_path, "-c", script, **environment) == carried


def _python(path: Path, *words: str, **environment: str) -> str:
    """What another interpreter prints that finds packages in ``path`` first."""
    env = {**os.environ, **environment, "PYTHONPATH": str(path)}
    return subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.usefixtures("able")
def test_without_a_compiler_torch_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "library_name", lambda instructions: "missing.so")
    monkeypatch.setenv("PATH", "")
    assert load_library() is None
    assert "which is slower: no C++ compiler: looked for g++, clang++" in caplog.text


@pytest.mark.usefixtures("able")
def test_with_a_compiler_that_ends_half_way_torch_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho half >"$2"\nexit 1\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "library_name", lambda instructions: "missing.so")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert load_library() is None
    assert f"which is slower: {compiler} exited with 1" in caplog.text
    assert not any((tmp_path / "paternoster" / "kernels").iterdir())


@pytest.mark.usefixtures("able")
def test_a_compiler_that_is_killed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has files of its own beside what it is to write."""
    compiler, temporary = tmp_path / "g++", tmp_path / "temporary"
    temporary.mkdir()
    compiler.write_text('#!/bin/sh\necho half >"$TMPDIR/half.s"\nkill -9 $$\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(module, "library_name", lambda instructions: "missing.so")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert load_library() is None
    assert f"which is slower: {compiler} exited with -9" in caplog.text
    assert not any((*temporary.iterdir(), *(tmp_path / "paternoster" / "kernels").iterdir()))


def test_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(instruction_sets.ENV, instruction_sets.NONE)
    assert load_library() is None


@compiles
@pytest.mark.usefixtures("able")
def test_a_source_that_does_not_compile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "native"
    sources.mkdir()
    (sources / "broken.cpp").write_text("int f( {")
    monkeypatch.setattr(module, "SOURCES", sources)
    with pytest.raises(OSError, match=r"broken\.cpp"):
        compile_library(tmp_path / "out", instruction_sets.find_available()[0])
    assert not any((tmp_path / "out").iterdir())
