"""How addresses name images in registries, and what of them this machine serves itself."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.model.errors import ModelSourceError
from paternoster_engine.model.source import resolve_source
from paternoster_sources.errors import (
    InvalidAddress,
)
from paternoster_sources.fetch import fetch_model
from paternoster_sources.image import ImageAddress, parse_image
from paternoster_sources.storage.cache import DownloadCache


@pytest.mark.parametrize(
    ("text", "reference", "path"),
    [
        ("oci://ghcr.io/org/name", "ghcr.io/org/name", ""),
        ("oci://ghcr.io/org/name:v1", "ghcr.io/org/name:v1", ""),
        ("oci://localhost:5000/name:v1/models/a.gguf", "localhost:5000/name:v1", "models/a.gguf"),
        ("oci://registry:5000/a/b/c:v1/", "registry:5000/a/b/c:v1", ""),
        (f"oci://ghcr.io/name@sha256:{'a' * 64}/x", f"ghcr.io/name@sha256:{'a' * 64}", "x"),
        (f"oci://ghcr.io/name:v1@sha256:{'a' * 64}", f"ghcr.io/name:v1@sha256:{'a' * 64}", ""),
    ],
)
def test_images_in_registries(text: str, reference: str, path: str) -> None:
    assert parse_image(text) == ImageAddress(reference, path)


@pytest.mark.parametrize(
    "text",
    [
        "oci://", "oci://name", "oci://org/name", "oci://ghcr.io", "oci://ghcr.io/", "oci://ghcr.io/Name",
        "oci://ghcr.io/name:", "oci://ghcr.io/name:v1/../x", "oci://ghcr.io/name:v1//x", "oci://ghcr.io/name:v1/%2e",
        "oci://ghcr.io/name@sha256:abc", "oci://u:p@ghcr.io/name", "oci://ghcr.io/name:v 1", "oci://ghcr.io/name:v1\n",
    ],
)  # fmt: skip
def test_images_that_are_none(text: str) -> None:
    with pytest.raises(InvalidAddress, match="allowed: oci://registry/name"):
        parse_image(text)


@given(st.text(max_size=60).map("oci://".__add__))
def test_any_text_is_an_image_or_refused(text: str) -> None:
    try:
        image = parse_image(text)
    except InvalidAddress:
        return
    assert ".." not in image.path.split("/")
    assert "/" in image.reference


def test_here_an_image_in_a_registry_is_not_pulled(cache: DownloadCache) -> None:
    for refused in (lambda text: fetch_model(text, cache), resolve_source):
        with pytest.raises((InvalidAddress, ModelSourceError), match="skopeo copy"):
            refused("oci://ghcr.io/org/name:v1")


def test_a_folder_with_one_gguf_file_or_models_in_it(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.gguf").write_bytes(b"x")
    assert resolve_source(tmp_path.as_uri()).path == tmp_path / "models" / "a.gguf"
    (tmp_path / "models" / "b.gguf").write_bytes(b"x")
    with pytest.raises(ModelSourceError, match=r"several .gguf files; name one of them: a\.gguf, b\.gguf"):
        resolve_source(tmp_path.as_uri())
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / "models" / name).write_bytes(random.randbytes(3))
    assert resolve_source(tmp_path.as_uri()).path == tmp_path / "models"
