"""Images in which a model cannot be, or that attack their reader."""

import json
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from tests.sources.images.image_layouts import (
    INDEX,
    LAYER,
    MANIFEST,
    Layout,
    fetched,
    files_layer,
    got,
    member,
    tar,
    whole,
)
from tests.sources.model_files import model_files

from paternoster_sources.errors import (
    Corrupted,
    NoWeights,
    SourceError,
    SourceNotFound,
    TooLarge,
    UnsafeListing,
    UnsafeWeights,
)
from paternoster_sources.remote import layers
from paternoster_sources.remote import tar as tars
from paternoster_sources.storage.cache import DownloadCache

FILES = model_files()


@pytest.mark.parametrize(
    "hostile",
    [
        member("models/model.safetensors", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("models/model.safetensors", type=tarfile.LNKTYPE, linkname="../../etc/passwd"),
        member("models/model.safetensors", type=tarfile.CHRTYPE, devmajor=1, devminor=5),
        member("models/model.safetensors", type=tarfile.FIFOTYPE),
        member("../models/model.safetensors", b"x"),
        member("models/../../model.safetensors", b"x"),
        member("models/./../x.json", b"x"),
        member("models/new\nline.json", b"x"),
        member("models/" + "a" * 300 + ".json", b"x"),
    ],
)
def test_hostile_members(layout: Layout, cache: DownloadCache, hostile: tuple[tarfile.TarInfo, bytes]) -> None:
    layout.image(files_layer(FILES), tar(hostile))
    with pytest.raises(UnsafeListing):
        got(layout.address, cache)
    assert not any(cache.folder.glob("*-*"))


def test_a_folder_that_became_a_link_leads_nowhere(layout: Layout, cache: DownloadCache) -> None:
    layout.image(files_layer(FILES), tar(member("models", type=tarfile.SYMTYPE, linkname="/etc")))
    with pytest.raises(SourceNotFound, match="there is nothing"):
        got(f"{layout.address}#path=models", cache)


def test_absolute_names_are_of_the_image(layout: Layout, cache: DownloadCache) -> None:
    layout.image(tar(*(member(f"/models/{name}", data) for name, data in FILES.items())))
    assert whole(got(layout.address, cache).path) == fetched(FILES)


def header(name: str, size: bytes, kind: bytes = b"0") -> bytes:
    """With a size that no library writes."""
    data = bytearray(tar(member(name))[:512])
    data[124:136] = size
    data[156:157] = kind
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data)
    return bytes(data)


@pytest.mark.parametrize(
    ("layer", "error"),
    [
        (header("models/model.safetensors", b"\xff" * 12), UnsafeListing),
        (header("models/model.safetensors", b"\x80" + b"\xff" * 11), TooLarge),
        (header("models/model.safetensors", b"00000100000\0"), TooLarge),
        (header("x", b"77777777777\0", b"x"), UnsafeListing),
        (header("x", b"77777777777\0", b"L"), UnsafeListing),
        (header("x", b"00000000000\0", b"x") * 3000, UnsafeListing),
        (b"no archive" * 100, UnsafeListing),
    ],
)
def test_headers_that_lie(layout: Layout, cache: DownloadCache, layer: bytes, error: type[SourceError]) -> None:
    layout.image(layer)
    tracemalloc.start()
    with pytest.raises(error):
        got(layout.address, cache)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * 2**20


@pytest.mark.parametrize("packed", ["+gzip", "+zstd"])
def test_a_layer_that_becomes_too_much(
    layout: Layout, cache: DownloadCache, packed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "MOST_MORE", 2**20)
    layout.image(files_layer({"model.safetensors": bytes(4 * 2**20)}), packed=packed)
    with pytest.raises(TooLarge):
        got(layout.address, cache)


def test_more_files_than_an_image_has(layout: Layout, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tars, "MOST_MEMBERS", 5)
    layout.image(tar(*(member(f"usr/{number}") for number in range(6))))
    with pytest.raises(TooLarge, match="5 files"):
        got(layout.address, cache)


@pytest.mark.parametrize("packed", ["+gzip", "+zstd"])
def test_a_layer_that_is_not_what_its_type_says(layout: Layout, cache: DownloadCache, packed: str) -> None:
    layout.index(layout.document(MANIFEST, {"layers": [layout.put(b"plain" * 500, LAYER + packed)]}))
    with pytest.raises(UnsafeListing, match="cannot be decompressed"):
        got(layout.address, cache)


def test_an_artifact_that_is_no_image(layout: Layout, cache: DownloadCache) -> None:
    raw = layout.put(b"x", "application/vnd.cncf.model.weight.v1.raw")
    layout.index(layout.document(MANIFEST, {"layers": [raw]}))
    with pytest.raises(NoWeights, match="is no layer of an image"):
        got(layout.address, cache)


def test_pickles_alone(layout: Layout, cache: DownloadCache) -> None:
    layout.image(files_layer({"config.json": b"{}", "pytorch_model.bin": b"x"}))
    with pytest.raises(UnsafeWeights):
        got(f"{layout.address}#path=models", cache)


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (None, SourceNotFound),
        ("{}", UnsafeListing),
        ("[]", UnsafeListing),
        ("no JSON", UnsafeListing),
        ('{"manifests": []}', NoWeights),
        ('{"manifests": [{"mediaType": "x", "digest": "sha256:../../x", "size": 1}]}', UnsafeListing),
        (f'{{"manifests": [{{"mediaType": "x", "digest": "sha256:{"0" * 64}", "size": 2}}]}}', SourceNotFound),
        (f'{{"manifests": [{{"mediaType": "x", "digest": "sha256:{"0" * 64}", "size": 99999999}}]}}', TooLarge),
        (" " * (4 * 2**20 + 1), TooLarge),
    ],
)
def test_an_index_that_is_none(
    layout: Layout, cache: DownloadCache, index: str | None, error: type[SourceError]
) -> None:
    if index is not None:
        (layout.path / "index.json").write_text(index)
    with pytest.raises(error):
        got(layout.address, cache)


def test_a_manifest_of_another_digest(layout: Layout, cache: DownloadCache) -> None:
    image = layout.image(files_layer(FILES))
    (layout.path / "blobs" / image["digest"].replace(":", "/")).write_text(json.dumps({"layers": []}))
    with pytest.raises(Corrupted):
        got(layout.address, cache)


def test_indexes_without_end(layout: Layout, cache: DownloadCache) -> None:
    inner = layout.manifest(files_layer(FILES))
    for _ in range(6):
        inner = layout.document(INDEX, {"manifests": [inner]})
    layout.index(inner)
    with pytest.raises(UnsafeListing, match="indexes within indexes"):
        got(layout.address, cache)


def test_what_is_no_plain_file(tmp_path: Path, cache: DownloadCache) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in (("pipe", "must be a plain file"), ("none.tar", "No such file")):
        with pytest.raises(SourceNotFound, match=message):
            got(f"oci-archive://{tmp_path / name}", cache)


def test_an_archive_with_a_blob_twice(layout: Layout, cache: DownloadCache, tmp_path: Path) -> None:
    layout.image(files_layer(FILES))
    address = layout.archive(tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar", "a") as archive:
        archive.add(layout.path / "index.json", "index.json")
    with pytest.raises(UnsafeListing, match="once"):
        got(address, cache)
