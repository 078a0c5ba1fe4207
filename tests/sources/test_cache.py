"""The folder of models: one download for many, room made and never taken from who uses it."""

import contextlib
import errno
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.loopback_hub import LoopbackHub
from tests.sources.model_files import AT_ONCE, model_files

from paternoster_sources import errors
from paternoster_sources.address import parse_address
from paternoster_sources.fetch import fetch_model
from paternoster_sources.plan import Listing, RemoteFile, make_plan
from paternoster_sources.storage.cache import CachedModel, DownloadCache
from paternoster_sources.storage.eviction import CacheEntry, choose_evicted

WEIGHTS = "model.safetensors"
TOTAL = 305_039
"""Bytes of the files that are fetched of :func:`model_files`."""
ENTRIES = st.lists(
    st.builds(
        CacheEntry,
        st.uuids().map(str),
        st.integers(0, 50),
        st.integers(0, 9).map(float),
        st.booleans(),
        st.integers(0, 5),
    ),
    max_size=8,
    unique_by=lambda entry: entry.key,
)


@given(ENTRIES, st.integers(0, 100), st.integers(0, 100), st.integers(1, 200))
def test_what_is_evicted(entries: list[CacheEntry], need: int, free: int, limit: int) -> None:
    chosen = choose_evicted(entries, need, free, limit)
    size = sum(entry.size + entry.coming for entry in entries)
    freed = sum(entry.size for entry in chosen)

    def fits(freed: int) -> bool:
        return size - freed + need <= limit and need <= free + freed

    assert not any(entry.in_use for entry in chosen)
    assert len(set(chosen)) == len(chosen)
    others = [entry for entry in entries if entry not in chosen and not entry.in_use and entry.size]
    assert fits(freed) or not others, "everything that may go has gone"
    assert not chosen or not fits(freed - chosen[-1].size), "no more goes than must"
    assert all(gone.used <= left.used for gone in chosen for left in others), "the least recently used go first"


def test_disk_without_room_is_seen_before_anything_is_written(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.add("org/tiny", model_files())
    room = {"free": TOTAL - 1}
    cache = DownloadCache(tmp_path / "models", free=lambda folder: room["free"])
    with pytest.raises(errors.NoSpace, match=rf"needs {TOTAL} bytes more: .* has {TOTAL - 1} bytes free"):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert not any("/resolve/" in request.path for request in hub.hub.received)
    assert list(cache.folder.rglob(WEIGHTS)) == []
    room["free"] = TOTAL
    assert fetch_model("hf://org/tiny", cache, retry=AT_ONCE).path.exists()


def test_a_disk_that_fills_while_it_is_written(hub: LoopbackHub, cache: DownloadCache, tmp_path: Path) -> None:
    """A file system of 256 KiB, which others were quicker to fill than the check knew."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system may be mounted here: {mounted.stderr.decode().strip()}")
    hub.add("org/tiny", model_files())
    try:
        full = DownloadCache(small, free=lambda folder: 2**40)
        with pytest.raises(errors.NoSpace, match=f"no space left while {WEIGHTS} was written"):
            fetch_model("hf://org/tiny", full, retry=AT_ONCE)
        assert full.find_model("hf://org/tiny") is None
        subprocess.run(["mount", "-o", "remount,size=2m", small], check=True)
        release(fetch_model("hf://org/tiny", full, retry=AT_ONCE))
    finally:
        subprocess.run(["umount", small], check=True)


def filled(hub: LoopbackHub, cache: DownloadCache, *names: str) -> list[Path]:
    """Models in the cache that no process uses, the first of them used longest ago."""
    paths = []
    for age, name in enumerate(names):
        hub.add(f"org/{name}", model_files(seed=10 * age))
        model = fetch_model(f"hf://org/{name}", cache, retry=AT_ONCE)
        paths.append(model.path)
        release(model)
        os.utime(record(model.path), (1000.0 + age, 1000.0 + age))
    return paths


def record(path: Path) -> Path:
    return path.parents[1] / "entry.json"


def release(model: CachedModel) -> None:
    assert model.lease is not None
    model.lease.close()


def test_the_least_recently_used_model_makes_room(hub: LoopbackHub, tmp_path: Path) -> None:
    first, second = filled(hub, DownloadCache(tmp_path / "models"), "first", "second")
    cache = DownloadCache(tmp_path / "models", limit=3 * TOTAL - 1)
    used = fetch_model("hf://org/first", cache, retry=AT_ONCE)
    release(used)
    hub.add("org/third", model_files(seed=50))
    third = fetch_model("hf://org/third", cache, retry=AT_ONCE)
    assert first.exists()
    assert not second.exists()
    assert third.path.exists()
    assert cache.find_model("hf://org/second") is None


def test_a_model_in_use_is_never_evicted(hub: LoopbackHub, tmp_path: Path) -> None:
    (first,) = filled(hub, DownloadCache(tmp_path / "models"), "first")
    cache = DownloadCache(tmp_path / "models", limit=2 * TOTAL - 1)
    used = fetch_model("hf://org/first", cache, retry=AT_ONCE)
    hub.add("org/other", model_files(seed=50))
    with pytest.raises(
        errors.NoSpace, match=rf"PATERNOSTER_MODELS_LIMIT is {2 * TOTAL - 1}, of which {TOTAL} are in use"
    ):
        fetch_model("hf://org/other", cache, retry=AT_ONCE)
    assert first.exists()
    release(used)
    assert fetch_model("hf://org/other", cache, retry=AT_ONCE).path.exists()
    assert not first.exists()


def test_others_go_where_the_oldest_is_in_use(hub: LoopbackHub, tmp_path: Path) -> None:
    """An engine that runs for long is what was used least recently."""
    first, second = filled(hub, DownloadCache(tmp_path / "models"), "first", "second")
    cache = DownloadCache(tmp_path / "models", limit=3 * TOTAL - 1)
    used = fetch_model("hf://org/first", cache, retry=AT_ONCE)
    os.utime(record(first), (500.0, 500.0))
    hub.add("org/third", model_files(seed=50))
    assert fetch_model("hf://org/third", cache, retry=AT_ONCE).path.exists()
    assert used.path.exists()
    assert not second.exists()


def test_a_model_larger_than_the_limit_evicts_nothing(hub: LoopbackHub, tmp_path: Path) -> None:
    (first,) = filled(hub, DownloadCache(tmp_path / "models"), "first")
    hub.add("org/large", model_files(seed=50, size=900_000))
    with pytest.raises(errors.NoSpace, match=rf"PATERNOSTER_MODELS_LIMIT allows {2 * TOTAL} in all"):
        fetch_model("hf://org/large", DownloadCache(tmp_path / "models", limit=2 * TOTAL), retry=AT_ONCE)
    assert first.exists()


def test_what_another_process_is_about_to_write_counts_as_written(hub: LoopbackHub, tmp_path: Path) -> None:
    room = {"free": 2 * TOTAL - 1}
    cache = DownloadCache(tmp_path / "models", free=lambda folder: room["free"])
    cache.make_folder()
    other = make_plan(parse_address("hf://org/other"), Listing((RemoteFile("a.gguf", TOTAL),)))
    with contextlib.closing(cache.lock_model(other.key)) as lock:
        assert lock.try_exclusive()
        cache.prepare_folder(other)
        hub.add("org/tiny", model_files())
        with pytest.raises(errors.NoSpace, match=f"needs {TOTAL} bytes more: .* has {TOTAL - 1} bytes free"):
            fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
        limited = DownloadCache(cache.folder, limit=2 * TOTAL - 1)
        with pytest.raises(errors.NoSpace, match=f"of which {TOTAL} are in use"):
            fetch_model("hf://org/tiny", limited, retry=AT_ONCE)
    assert fetch_model("hf://org/tiny", cache, retry=AT_ONCE).path.exists(), "the other one was given up"


def test_what_was_begun_and_given_up_makes_room_too(hub: LoopbackHub, tmp_path: Path) -> None:
    cache = DownloadCache(tmp_path / "models", limit=2 * TOTAL)
    files = model_files()
    hub.add("org/begun", files)
    hub.cdn.breaks[hub.blob_path(files[WEIGHTS])] = [250_000, 0, 0]
    with pytest.raises(errors.Unreachable):
        fetch_model("hf://org/begun", cache, retry=AT_ONCE)
    assert len(list(cache.folder.glob("*.partial"))) == 1
    hub.add("org/other", model_files(seed=50, size=500_000))
    assert fetch_model("hf://org/other", cache, retry=AT_ONCE).path.exists()
    assert list(cache.folder.glob("*.partial")) == []


def test_a_model_without_its_record_is_fetched_again(hub: LoopbackHub, cache: DownloadCache) -> None:
    (path,) = filled(hub, cache, "tiny")
    record(path).unlink()
    assert fetch_model("hf://org/tiny", cache, retry=AT_ONCE).path.exists()


def test_a_model_that_lost_a_file_or_a_part_of_one_is_fetched_again(hub: LoopbackHub, cache: DownloadCache) -> None:
    for damage in (Path.unlink, lambda file: file.write_bytes(b"short")):
        (path,) = filled(hub, cache, "tiny")
        damage(path / WEIGHTS)
        assert cache.find_model("hf://org/tiny") is None
        model = fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
        assert (model.path / WEIGHTS).stat().st_size == 300_000
        release(model)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"key": "../../etc"}', '{"key": 5}', "\0"])
def test_an_address_that_leads_nowhere_is_asked_for_again(hub: LoopbackHub, cache: DownloadCache, text: str) -> None:
    (path,) = filled(hub, cache, "tiny")
    (pointer,) = (cache.folder / "addresses").iterdir()
    pointer.write_text(text)
    assert fetch_model("hf://org/tiny", cache, retry=AT_ONCE).path == path


def test_a_link_in_the_place_of_a_file_is_not_written_through(
    hub: LoopbackHub, cache: DownloadCache, tmp_path: Path
) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    hub.cdn.breaks[hub.blob_path(files[WEIGHTS])] = [0, 0, 0]
    with pytest.raises(errors.Unreachable):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    (partial,) = cache.folder.rglob(WEIGHTS)
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    partial.unlink()
    partial.symlink_to(other)
    with pytest.raises(errors.CacheUnusable, match=os.strerror(errno.ELOOP)):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert other.read_bytes() == b"precious"


def test_a_folder_that_is_a_file(hub: LoopbackHub, tmp_path: Path) -> None:
    (tmp_path / "models").write_text("")
    with pytest.raises(errors.CacheUnusable, match="PATERNOSTER_MODELS names another"):
        fetch_model("hf://org/tiny", DownloadCache(tmp_path / "models"), retry=AT_ONCE)


@pytest.mark.parametrize("limit", ["0", "-1", "10GB", "1.5"])
def test_a_limit_that_is_no_number(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setenv("PATERNOSTER_MODELS_LIMIT", limit)
    with pytest.raises(errors.CacheUnusable, match="must be a whole number of bytes above 0"):
        DownloadCache.from_env()
