"""Model addresses: what they resolve to, and the error of a wrong one."""

import sys
from pathlib import Path

import pytest

from paternoster_engine.model.errors import ModelSourceError
from paternoster_engine.model.source import resolve_source


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package that must not be imported."""
    folder = tmp_path / "carrier"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_package_with_one_file(package: Path) -> None:
    (package / "weights.gguf").touch()
    source = resolve_source("package://carrier")
    assert (source.format, source.path) == ("gguf", package / "weights.gguf")
    assert "carrier" not in sys.modules


def test_package_with_several_files(package: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (package / name).touch()
    with pytest.raises(ModelSourceError, match=r"package://carrier.*exactly one \.gguf.*a\.gguf, b\.gguf"):
        resolve_source("package://carrier")


@pytest.mark.parametrize("folder", [".", "model"])
def test_package_with_one_folder(package: Path, folder: str) -> None:
    (package / folder).mkdir(exist_ok=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (package / folder / name).touch()
    source = resolve_source("package://carrier")
    assert (source.format, source.path) == ("safetensors", package / folder)


def test_package_with_a_file_and_a_folder(package: Path) -> None:
    for name in ("a.gguf", "config.json"):
        (package / name).touch()
    with pytest.raises(ModelSourceError, match=r"found a\.gguf, config\.json"):
        resolve_source("package://carrier")


@pytest.mark.usefixtures("package")
def test_package_without_a_file() -> None:
    with pytest.raises(
        ModelSourceError, match=r"exactly one \.gguf file or one folder with a config\.json, found none"
    ):
        resolve_source("package://carrier")


def test_file_address(tmp_path: Path) -> None:
    path = tmp_path / "my model.gguf"
    path.touch()
    assert resolve_source(path.as_uri()).path == path


def test_folder_address(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "model-00001-of-00002.safetensors"):
        (tmp_path / name).touch()
    source = resolve_source(f"file://{tmp_path}")
    assert (source.format, source.path) == ("safetensors", tmp_path)


def test_folder_that_lacks_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    with pytest.raises(ModelSourceError, match=r"no tokenizer\.json, \*\.safetensors"):
        resolve_source(f"file://{tmp_path}")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("package://no_such_package_here", "no_such_package_here.*not installed"),
        ("package://a.b", "not the name of a top-level"),
        ("package://", "not the name of a top-level"),
        ("file:///no/such.gguf", "no file or folder /no/such.gguf"),
        ("file://host/model.gguf", "three slashes"),
        ("ftp://host/model.gguf", "unknown scheme 'ftp'; allowed: file:///"),
        ("model.gguf", "unknown scheme ''; allowed"),
        ("", "unknown scheme"),
    ],
)
def test_wrong_addresses(address: str, message: str) -> None:
    with pytest.raises(ModelSourceError, match=message):
        resolve_source(address)


def test_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "model.bin").touch()
    with pytest.raises(ModelSourceError, match=r"model\.bin is not a \.gguf file"):
        resolve_source((tmp_path / "model.bin").as_uri())
