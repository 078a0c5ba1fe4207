"""Bytes of cached files: compared with what was fetched where a file changed since, and only there."""

import json
import logging
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sources.loopback_hub import LoopbackHub, sha256
from tests.sources.model_files import AT_ONCE, model_files
from tests.sources.test_processes import PATIENCE, pull

from paternoster_sources import digest, errors, fetch
from paternoster_sources.fetch import fetch_model
from paternoster_sources.storage.cache import DownloadCache

ADDRESS = "hf://org/tiny"
WEIGHTS = "model.safetensors"
FETCHED = ["config.json", WEIGHTS, "tokenizer.json"]
OLD, NEW = "0" * 16, "1" * 16


def fetched(cache: DownloadCache, **more: Any) -> Path:
    """The folder of the model, which nothing uses afterwards."""
    model = fetch_model(ADDRESS, cache, retry=AT_ONCE, **more)
    assert model.lease is not None
    model.lease.close()
    return model.path


def record(path: Path) -> Path:
    return path.parents[1] / "entry.json"


def swap_bytes(file: Path) -> None:
    file.write_bytes(bytes(byte ^ 255 for byte in file.read_bytes()))


def truncate_and_pad(file: Path) -> None:
    size = file.stat().st_size
    os.truncate(file, size // 2)
    os.truncate(file, size)


def damage_silently(file: Path) -> None:
    """Damage a file like a disk: its size and time stay."""
    before = file.stat()
    swap_bytes(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files in the cache that were hashed."""
    names: list[str] = []
    hash_file = digest.hash_file

    def count_file(path: Path, *more: Any) -> Any:
        names.append(path.name)
        return hash_file(path, *more)

    monkeypatch.setattr(fetch, "hash_file", count_file)
    return names


@pytest.mark.parametrize("damage", [swap_bytes, truncate_and_pad])
@pytest.mark.parametrize("refresh", [False, True])
@pytest.mark.parametrize("name", FETCHED)
def test_a_file_of_the_right_size_with_other_bytes_is_fetched_again(
    hub: LoopbackHub,
    cache: DownloadCache,
    caplog: pytest.LogCaptureFixture,
    hashed: list[str],
    damage: Callable[[Path], None],
    refresh: bool,
    name: str,
) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    damage(fetched(cache) / name)
    with caplog.at_level(logging.WARNING):
        path = fetched(cache, refresh=refresh)
    assert {each: (path / each).read_bytes() for each in FETCHED} == {each: files[each] for each in FETCHED}
    assert hashed == [name]
    (line,) = [each.getMessage() for each in caplog.records if name in each.getMessage()]
    assert record(path).parent.name in line
    assert "is removed" in line
    assert name != WEIGHTS or sha256(files[name]) in line
    fetched(cache)
    assert hashed == [name]


def test_files_that_did_not_change_are_not_hashed_again(
    hub: LoopbackHub, cache: DownloadCache, hashed: list[str]
) -> None:
    hub.add("org/tiny", model_files())
    path = fetched(cache)
    received = len(hub.hub.received) + len(hub.cdn.received)
    for _ in range(3):
        assert fetched(cache) == path
    assert hashed == []
    (path / WEIGHTS).touch()
    for _ in range(3):
        assert fetched(cache) == path
    assert hashed == [WEIGHTS], "its new time is recorded"
    assert len(hub.hub.received) + len(hub.cdn.received) == received


def test_a_cache_without_digests_gets_them_without_a_download(
    hub: LoopbackHub, cache: DownloadCache, hashed: list[str]
) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    path = fetched(cache)
    entry = json.loads(record(path).read_text())
    del entry["contents"]
    record(path).write_text(json.dumps(entry))
    received = len(hub.hub.received) + len(hub.cdn.received)
    for _ in range(2):
        assert fetched(cache) == path
    assert sorted(hashed) == FETCHED
    assert len(hub.hub.received) + len(hub.cdn.received) == received
    recorded = json.loads(record(path).read_text())["contents"]
    assert {name: each["digest"]["value"] for name, each in recorded.items()} == {
        name: sha256(files[name]) for name in FETCHED
    }
    swap_bytes(path / WEIGHTS)
    assert (fetched(cache) / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_an_older_cache_that_cannot_be_written_is_not_hashed_at_each_start(
    hub: LoopbackHub, cache: DownloadCache, hashed: list[str]
) -> None:
    hub.add("org/tiny", model_files())
    path = fetched(cache)
    entry = json.loads(record(path).read_text())
    del entry["contents"]
    record(path).write_text(json.dumps(entry))
    folder = str(cache.folder)
    if subprocess.run(["mount", "--bind", folder, folder], capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        assert fetched(cache) == path
        assert hashed == []
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("flags", [[], ["--no-refresh"]])
def test_verify_hashes_every_file(hub: LoopbackHub, cache: DownloadCache, hashed: list[str], flags: list[str]) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    path = fetched(cache)
    fetched(cache, verify=True)
    assert sorted(hashed) == FETCHED
    damage_silently(path / WEIGHTS)
    with pull(ADDRESS, "--verify", *flags) as process:
        output, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output.strip()) == (0, str(path))
    assert f"{WEIGHTS}: its sha256 is " in err
    assert f"must be {sha256(files[WEIGHTS])}" in err
    assert (path / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_wrong_files_that_another_process_uses_are_refused(
    hub: LoopbackHub, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be waited for as long as that process lives."""
    monkeypatch.setattr(fetch, "POLL", 0)
    files = model_files()
    hub.add("org/tiny", files)
    used = fetch_model(ADDRESS, cache, retry=AT_ONCE)
    swap_bytes(used.path / WEIGHTS)
    with pytest.raises(errors.CacheUnusable, match="another process uses it"):
        fetch_model(ADDRESS, cache, retry=AT_ONCE)
    assert (used.path / WEIGHTS).exists()
    assert used.lease is not None
    used.lease.close()
    assert (fetched(cache) / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_wrong_files_make_room_for_the_right_ones(hub: LoopbackHub, tmp_path: Path) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    total = sum(len(files[name]) for name in FETCHED)
    path = fetched(DownloadCache(tmp_path / "models", limit=total))
    swap_bytes(path / WEIGHTS)
    assert fetched(DownloadCache(tmp_path / "models", limit=total)) == path
    assert (path / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_what_killed_processes_left_is_removed(hub: LoopbackHub, cache: DownloadCache) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    path = fetched(cache)
    old, now = time.time() - 30 * 86_400, time.time()
    left = [cache.folder / "addresses" / f"{'0' * 40}.json", record(path), record(path).with_name("total")]
    other = record(path).with_name("other.json")
    for name, modified in ((OLD, old), (NEW, now)):
        for begun in (*left, other):
            unfinished = begun.with_name(f"{begun.name}.{name}")
            unfinished.write_text("{")
            os.utime(unfinished, (modified, modified))
    for name in ("old", "new", "locked"):
        begun = cache.folder / f"hf--org--{name}-{'0' * 20}.partial" / "files" / name
        begun.mkdir(parents=True)
        (begun / WEIGHTS).write_bytes(b"begun")
        modified = now if name == "new" else old
        for each in (begun / WEIGHTS, begun, begun.parent, begun.parents[1]):
            os.utime(each, (modified, modified))
    lock = cache.lock_model(f"hf--org--locked-{'0' * 20}")
    assert lock.try_exclusive()
    fetched(cache, refresh=True)
    lock.close()
    assert [each.name for each in cache.folder.rglob(f"*.{OLD}")] == [f"{other.name}.{OLD}"], "it is not the cache's"
    assert len(list(cache.folder.rglob(f"*.{NEW}"))) == len(left) + 1
    assert sorted(each.name[9:-29] for each in cache.folder.glob("*.partial")) == ["locked", "new"]
    assert (path / WEIGHTS).read_bytes() == files[WEIGHTS]
