"""Finding, compiling and doing without the C++ library."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paternoster_kernels.cpu import library as module
from paternoster_kernels.cpu.library import COMPILERS, SIGNATURES, compile_library, library


@pytest.fixture(autouse=True)
def _looked_for_anew() -> Iterator[None]:
    library.cache_clear()
    yield
    library.cache_clear()


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    if not module._cpu_is_able():
        pytest.skip("no AMX for bfloat16")


@pytest.mark.usefixtures("able")
@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="no C++ compiler")
def test_compiles_once_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = library()
    assert found is not None
    assert all(hasattr(found, name) for name in SIGNATURES)
    [made] = (tmp_path / "paternoster" / "kernels").iterdir()
    library.cache_clear()
    monkeypatch.setenv("PATH", "")
    again = library()
    assert again is not None
    assert again._name == str(made)


@pytest.mark.usefixtures("able")
@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="no C++ compiler")
def test_an_image_carries_one(tmp_path: Path) -> None:
    """Made beside the sources, as the image's build does, it serves where nothing can be compiled or written."""
    package = Path(module.__file__).parents[1]
    shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    built = _python(tmp_path, "-m", module.__name__)
    assert Path(built).parent == tmp_path / package.name / "cpu"
    asks = f"from {module.__name__} import library; print(library()._name)"
    assert _python(tmp_path, "-c", asks, PATH="", XDG_CACHE_HOME="/dev/null") == built


def _python(path: Path, *words: str, **environment: str) -> str:
    """What another interpreter prints that finds packages in ``path`` first."""
    env = {**os.environ, **environment, "PYTHONPATH": str(path)}
    return subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.usefixtures("able")
def test_without_a_compiler_torch_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_name", lambda: "missing.so")
    monkeypatch.setenv("PATH", "")
    assert library() is None
    assert "no C++ compiler: looked for g++, clang++" in caplog.text


def test_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.DISABLE_ENV, "1")
    assert library() is None


@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="no C++ compiler")
def test_a_source_that_does_not_compile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "native"
    sources.mkdir()
    (sources / "broken.cpp").write_text("int f( {")
    monkeypatch.setattr(module, "SOURCES", sources)
    with pytest.raises(OSError, match=r"broken\.cpp"):
        compile_library(tmp_path / "out")
    assert not any((tmp_path / "out").iterdir())
