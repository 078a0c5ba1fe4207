"""Models in images that lie on this machine: every way of writing one, laid layer over layer, and hostile ones."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.images.image_layouts import (
    INDEX,
    PACKED,
    Layout,
    fetched,
    files_layer,
    folder,
    got,
    member,
    tar,
    whole,
)
from tests.sources.model_files import model_files

from paternoster_engine.model.source import resolve_source
from paternoster_sources import fetch as fetching
from paternoster_sources.errors import (
    AmbiguousWeights,
    Corrupted,
    NoSpace,
    NoWeights,
    RevisionNotFound,
    SourceNotFound,
)
from paternoster_sources.plan import RemoteFile
from paternoster_sources.remote import image_files, layers
from paternoster_sources.remote.image_files import ImageFiles
from paternoster_sources.remote.layers import LayerChanges, LayerEntry, lay_over
from paternoster_sources.storage.cache import DownloadCache

FILES = model_files()


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("top", ["models", "", "some/where"])
def test_an_image_becomes_a_folder(layout: Layout, cache: DownloadCache, packed: str, top: str, tmp_path: Path) -> None:
    layout.image(tar(folder("etc"), member("etc/os-release", b"x")), files_layer(FILES, top), packed=packed)
    inside = f"#path={top}" if "/" in top else ""
    model = got(layout.address + inside, cache)
    assert (model.format, whole(model.path)) == ("safetensors", fetched(FILES))
    assert model.revision == layout.images[0]["digest"]
    assert whole(got(layout.archive(tmp_path / "image.tar") + inside, cache).path) == fetched(FILES)
    assert resolve_source(layout.address + inside).path == model.path


def test_one_file_of_several(layout: Layout, cache: DownloadCache) -> None:
    layout.image(files_layer({"a.gguf": b"a" * 9, "b.gguf": b"b" * 9}))
    with pytest.raises(AmbiguousWeights, match=r"a\.gguf, b\.gguf"):
        got(layout.address, cache)
    model = got(f"{layout.address}#path=models/b.gguf", cache)
    assert (model.format, model.path.read_bytes()) == ("gguf", b"b" * 9)
    with pytest.raises(SourceNotFound, match=r"'c\.gguf'"):
        got(f"{layout.address}#path=models/c.gguf", cache)


def test_one_image_of_several(layout: Layout, cache: DownloadCache) -> None:
    for tag in ("v1", "registry.example/name:v2"):
        layout.image(files_layer({"m.gguf": tag.encode()}), tag=tag)
    with pytest.raises(AmbiguousWeights, match=r"#tag=.*'registry.example/name:v2', 'v1'"):
        got(layout.address, cache)
    with pytest.raises(RevisionNotFound, match="'v3'"):
        got(f"{layout.address}#tag=v3", cache)
    assert got(f"{layout.address}#tag=v1", cache).path.read_bytes() == b"v1"
    assert got(f"{layout.address}#tag=registry.example/name:v2", cache).path.read_bytes() == b"registry.example/name:v2"
    assert got(f"{layout.address}#tag={layout.images[0]['digest']}", cache).path.read_bytes() == b"v1"


def test_an_image_for_several_machines(layout: Layout, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch) -> None:
    of = {
        machine: layout.manifest(
            files_layer({"m.gguf": machine.encode()}), platform={"os": "linux", "architecture": machine}
        )
        for machine in ("amd64", "arm64", "unknown")
    }
    layout.index(layout.document(INDEX, {"manifests": list(of.values())}))
    for machine, content in (("x86_64", b"amd64"), ("aarch64", b"arm64")):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        assert got(layout.address, cache, refresh=True).path.read_bytes() == content
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(NoWeights, match="0 images for linux/riscv64"):
        got(layout.address, cache, refresh=True)


@pytest.mark.parametrize("hidden", [".wh.model.safetensors", ".wh..wh..opq"])
def test_what_a_layer_removes_is_gone(layout: Layout, cache: DownloadCache, hidden: str) -> None:
    upper = tar(member(f"models/{hidden}"), member("models/new.gguf", b"new"))
    layout.image(files_layer(FILES), upper)
    if hidden.endswith("opq"):
        assert got(layout.address, cache).path.name == "new.gguf"
        return
    assert got(layout.address, cache).path.read_bytes() == b"new", "there are no safetensors any more"


def test_a_later_layer_wins(layout: Layout, cache: DownloadCache) -> None:
    other = b"other" * 100
    layout.image(files_layer(FILES), tar(member("./models/model.safetensors", other)))
    assert whole(got(layout.address, cache).path)["model.safetensors"] == other


def test_a_layer_that_is_there_again_and_again_is_looked_through_once(
    layout: Layout, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, scan = [], layers.scan_layer
    monkeypatch.setattr(image_files, "scan_layer", lambda *given: looked.append(given) or scan(*given))
    layer, gone = files_layer(FILES), tar(member("models/.wh.model.safetensors"))
    layout.image(*[layer, gone] * 100, layer)
    assert whole(got(layout.address, cache).path) == fetched(FILES)
    assert len(looked) == 2


PATHS = st.sampled_from(["models", "models/a", "models/b", "a", "b"])


@given(st.lists(st.tuples(st.dictionaries(PATHS, st.sampled_from(["file", "folder", "gone", "opaque"])), st.none())))
def test_layers_are_laid_over_each_other_as_a_file_system_has_them(steps: list[tuple[dict[str, str], None]]) -> None:
    """Against a dictionary of a file system, in which whiteouts come before what a layer adds."""
    found: dict[str, LayerEntry] = {}
    there: dict[str, int] = {}
    for number, (step, _) in enumerate(steps):
        changes = LayerChanges()
        files = {
            path
            for path, kind in step.items()
            if kind == "file" and not (path != "models" and step.get("models") == "file" and path.startswith("models/"))
        }
        for path, kind in step.items():
            if kind in ("gone", "opaque"):
                (changes.removed if kind == "gone" else changes.emptied).add(path)
                below = [name for name in there if name.startswith(f"{path}/") or (kind == "gone" and name == path)]
                for name in below:
                    del there[name]
        for path, kind in step.items():
            if kind == "folder":
                changes.folders.add(path)
                there.pop(path, None)
        for path in files:
            changes.entries[path] = LayerEntry(number)
            for name in [name for name in there if name.startswith(f"{path}/")]:
                del there[name]
        there.update(dict.fromkeys(files, number))
        found = lay_over(found, changes)
    assert {path: entry.layer for path, entry in found.items()} == there


def test_a_corrupted_layer_is_named_and_nothing_of_it_stays(layout: Layout, cache: DownloadCache) -> None:
    layer = files_layer(FILES)
    layout.image(layer)
    data = bytearray(layer)
    data[layer.index(FILES["model.safetensors"]) + 5] ^= 1
    layout.blob(layer).write_bytes(data)
    with pytest.raises(Corrupted, match="sha256"):
        got(layout.address, cache)
    assert not any(cache.folder.glob("*/entry.json"))
    layout.blob(layer).write_bytes(layer)
    assert whole(got(layout.address, cache).path) == fetched(FILES)


@pytest.mark.parametrize("packed", PACKED)
def test_a_layer_that_is_cut_off(layout: Layout, cache: DownloadCache, packed: str) -> None:
    layer = PACKED[packed](files_layer(FILES))
    layout.image(files_layer(FILES), packed=packed)
    layout.blob(layer).write_bytes(layer[:-4000])
    with pytest.raises(Corrupted):
        got(layout.address, cache)


def test_a_layer_that_changes_after_it_was_looked_through(
    layout: Layout, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = files_layer(FILES)
    layout.image(layer)
    other = layer.replace(FILES["model.safetensors"], b"x" * len(FILES["model.safetensors"]))
    open_ = ImageFiles.open_stream

    def late(self: ImageFiles, file: RemoteFile, start: int) -> Any:
        layout.blob(layer).write_bytes(other)
        return open_(self, file, start)

    monkeypatch.setattr(ImageFiles, "open_stream", late)
    with pytest.raises(Corrupted, match=r"model\.safetensors: the sha256 of what came"):
        got(layout.address, cache)


@pytest.mark.parametrize("packed", PACKED)
def test_what_came_before_a_break_stays(layout: Layout, cache: DownloadCache, packed: str) -> None:
    layout.image(files_layer(FILES), packed=packed)
    address = fetching.parse_address(layout.address)
    source = ImageFiles(address)
    plan = fetching.make_plan(address, source.list())
    partial = cache.prepare_folder(plan) if cache.make_folder() is None else None
    assert partial is not None
    (partial / "model.safetensors").write_bytes(FILES["model.safetensors"][:100_000])
    (partial / "tokenizer.json").write_bytes(b"from a broken disk")
    started: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        open_ = ImageFiles.open_stream

        def counting(self: ImageFiles, file: RemoteFile, start: int) -> Any:
            started.append(start)
            return open_(self, file, start)

        patch.setattr(ImageFiles, "open_stream", counting)
        assert whole(got(layout.address, cache).path) == fetched(FILES)
    assert 100_000 in started
    source.close()


def test_a_full_disk_is_told_before_anything_is_written(layout: Layout, tmp_path: Path) -> None:
    layout.image(files_layer(FILES))
    cache = DownloadCache(tmp_path / "full", free=lambda _: 1000)
    with pytest.raises(NoSpace, match="needs 305039 bytes more"):
        got(layout.address, cache)


def test_what_an_image_was_is_served_when_its_file_is_gone(layout: Layout, cache: DownloadCache) -> None:
    layout.image(files_layer(FILES))
    model = got(layout.address, cache)
    shutil.rmtree(layout.path)
    assert got(layout.address, cache).path == model.path
    with pytest.raises(SourceNotFound):
        got(layout.address, cache, refresh=True)


@pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed")
def test_what_buildah_writes(tmp_path: Path, cache: DownloadCache) -> None:
    context = tmp_path / "model"
    context.mkdir()
    for name, data in FILES.items():
        (context / name).write_bytes(data)
    store = [f"--root={tmp_path / 'storage'}", f"--runroot={tmp_path / 'run'}", "--storage-driver=vfs"]

    def buildah(*words: str) -> str:
        done = subprocess.run(["buildah", *store, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"buildah cannot run here: {done.stderr[-300:]}")
        return done.stdout.strip()

    container = buildah("from", "scratch")
    buildah("add", "--quiet", container, str(context), "/models")
    buildah("commit", "--quiet", container, "localhost/model:v1")
    for form, zipped in (("oci-archive", "zstd"), ("oci-archive", "gzip")):
        path = tmp_path / f"{zipped}.tar"
        buildah("push", "--quiet", f"--compression-format={zipped}", "localhost/model:v1", f"{form}:{path}:model:v1")
        assert whole(got(f"oci-archive://{path}#tag=model:v1", cache).path) == fetched(FILES)
    buildah("push", "--quiet", "localhost/model:v1", f"oci:{tmp_path / 'folder'}:v1")
    assert whole(got(f"oci-layout://{tmp_path / 'folder'}", cache).path) == fetched(FILES)
