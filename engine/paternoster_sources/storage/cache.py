"""The folder of fetched models.

``KEY/`` is a whole model: ``KEY/entry.json``, and ``KEY/files/NAME/`` with its files. ``KEY.partial/`` is one begun,
``KEY.lock`` the lock of both, ``room.lock`` that of who looks for room, and ``addresses/HASH.json`` says to which key
an address led when it was last asked. A model comes into being by one rename, so what is there is whole.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paternoster_contract.labels import ADAPTERS_ENV, ADAPTERS_LIMIT_ENV, MODELS_ENV, MODELS_LIMIT_ENV
from paternoster_sources import names
from paternoster_sources.errors import CacheUnusable, NoSpace
from paternoster_sources.plan import Digest, FetchPlan
from paternoster_sources.storage.eviction import CacheEntry, choose_evicted
from paternoster_sources.storage.files import modified_at, remove_unfinished, size_of, sync_folder, write_text
from paternoster_sources.storage.lock import FileLock
from paternoster_sources.storage.record import (
    ENTRY,
    FILES,
    HashFiles,
    Record,
    check_contents,
    describe_contents,
    read_record,
)

DEFAULT_FOLDER = "~/.cache/paternoster/models"
PARTIAL = ".partial"
TOTAL = "total"
"""How many bytes one that is begun will have."""
GIVEN_UP_SECONDS = 7 * 86_400.0
"""Age above which a model that is begun, and that no process fetches, is removed."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*-[0-9a-f]{20}")


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model on this machine's disk, which is not evicted while ``lease`` is open or its process lives."""

    path: Path
    """The .gguf file, or the folder with config.json and *.safetensors."""
    format: Literal["gguf", "safetensors"]
    revision: str
    size: int
    """Bytes."""
    lease: FileLock | None


def free_space(folder: Path) -> int:
    """Bytes that may still be written below ``folder``."""
    return shutil.disk_usage(folder).free


class DownloadCache:
    """Raises :class:`CacheUnusable` where its folder cannot be used."""

    def __init__(self, folder: Path, limit: int | None = None, free: Callable[[Path], int] = free_space) -> None:
        """``limit``: bytes of all models; none are evicted without one. ``free`` is a seam for tests."""
        self.folder, self.limit, self._free = folder, limit, free

    @classmethod
    def from_env(cls) -> "DownloadCache":
        folder = Path(os.environ.get(MODELS_ENV) or DEFAULT_FOLDER).expanduser().absolute()
        return cls(folder, _read_limit(MODELS_LIMIT_ENV))

    @classmethod
    def for_adapters(cls) -> "DownloadCache":
        """Return the cache of adapters: the models' own unless the environment names another."""
        folder = os.environ.get(ADAPTERS_ENV)
        return cls(Path(folder).absolute(), _read_limit(ADAPTERS_LIMIT_ENV)) if folder else cls.from_env()

    def find_model(
        self, address: str, hash_files: HashFiles | None = None, *, verify: bool = False
    ) -> CachedModel | None:
        """What ``address`` led to when it was last asked, if it is still there; else as :meth:`lease_model`."""
        try:
            key = json.loads(self._pointer_path(address).read_text()).get("key")
        except (OSError, ValueError, AttributeError):
            return None
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            return None
        return self.lease_model(key, hash_files, verify=verify)

    def lease_model(self, key: str, hash_files: HashFiles | None = None, *, verify: bool = False) -> CachedModel | None:
        """The whole model ``key``, leased; None where there is none.

        With ``hash_files`` files that changed since they were fetched are hashed, with ``verify`` all; a model with
        other bytes than were fetched is none from then on.
        """
        if not (self.folder / key).is_dir():
            return None
        try:
            lease = self.lock_model(key)
        except OSError:
            # A folder that others filled and that we may only read, without a lock file that we may open.
            lease = None
        if lease is not None:
            lease.wait_shared()
        try:
            model = self._find_model(key, lease, hash_files, verify)
        except BaseException:
            if lease is not None:
                lease.close()
            raise
        if model is None and lease is not None:
            lease.close()
        return model

    def has_model(self, key: str) -> bool:
        """Whether the model ``key`` is whole."""
        return read_record(self.folder / key) is not None

    def lock_model(self, key: str) -> FileLock:
        return FileLock(self.folder / f"{key}.lock")

    def record_address(self, address: str, key: str) -> None:
        """Remember that ``address`` leads to ``key``."""
        write_text(self._pointer_path(address), json.dumps({"address": address, "key": key}))

    def prepare_folder(self, plan: FetchPlan) -> Path:
        """The folder to fetch the files of ``plan`` into, perhaps with some of an earlier attempt in it.

        To be called with its lock held exclusively. Nothing is written before there is room for all of it: raises
        :class:`NoSpace`.
        """
        partial = self.folder / f"{plan.key}{PARTIAL}"
        files = partial / FILES / plan.address.name
        # What is there is no model, and the room of its files is needed.
        _remove_folder(self.folder / plan.key)
        with contextlib.closing(self.lock_model("room")) as room:
            # One at a time: what another process is about to write counts as written.
            room.wait_exclusive()
            self._make_room(plan, plan.total - min(size_of(partial / FILES), plan.total))
            files.mkdir(parents=True, exist_ok=True)
            write_text(partial / TOTAL, str(plan.total))
        return files

    def _make_room(self, plan: FetchPlan, need: int) -> None:
        what = f"model {plan.address.text!r}"
        entries = self._list_entries(plan.key)
        free = self._free(self.folder) - sum(entry.coming for entry in entries)
        if self.limit is not None:
            if plan.total > self.limit:
                raise NoSpace(f"{what}: has {plan.total} bytes: ${MODELS_LIMIT_ENV} allows {self.limit} in all")
            for entry in choose_evicted(entries, need, free, self.limit):
                self.evict_model(entry.key)
            entries = self._list_entries(plan.key)
            held = sum(entry.size + entry.coming for entry in entries)
            if held + need > self.limit:
                raise NoSpace(
                    f"{what}: needs {need} bytes more: ${MODELS_LIMIT_ENV} is {self.limit}, of which {held} are in use"
                )
            free = self._free(self.folder) - sum(entry.coming for entry in entries)
        if need > free:
            raise NoSpace(f"{what}: needs {need} bytes more: {self.folder} has {free} bytes free")

    def complete_model(self, plan: FetchPlan, digests: Mapping[str, Digest]) -> None:
        """Make what :meth:`prepare_folder` gave a model, all at once; its files must be whole and on disk.

        ``digests``: of what was written, by the name of the file in its folder.
        """
        partial = self.folder / f"{plan.key}{PARTIAL}"
        whole = self.folder / plan.key
        record = Record(
            address=plan.address.text,
            revision=plan.revision,
            format=plan.format,
            name=plan.address.name,
            files={names.base_name(file.name): file.size for file in plan.files},
            contents=describe_contents(partial / FILES / plan.address.name, digests),
        )
        write_text(partial / ENTRY, record.model_dump_json())
        (partial / TOTAL).unlink(missing_ok=True)
        sync_folder(partial / FILES / plan.address.name)
        sync_folder(partial)
        if whole.exists():
            shutil.rmtree(whole)
        partial.rename(whole)
        sync_folder(self.folder)

    def evict_model(self, key: str) -> bool:
        """Remove a model, unless somebody uses or fetches it."""
        with contextlib.closing(self.lock_model(key)) as lock:
            if not lock.try_exclusive():
                return False
            for folder in (self.folder / key, self.folder / f"{key}{PARTIAL}"):
                _remove_folder(folder)
            return True

    def remove_leftovers(self) -> None:
        """Remove what killed processes left, and models that were begun and given up."""
        remove_unfinished(self.folder)
        before = time.time() - GIVEN_UP_SECONDS
        for partial in self.folder.glob(f"*{PARTIAL}"):
            key = partial.name.removesuffix(PARTIAL)
            if not _KEY.fullmatch(key) or _last_written(partial) > before:
                continue
            # What is another user's stays.
            with contextlib.suppress(OSError), contextlib.closing(self.lock_model(key)) as lock:
                if lock.try_exclusive() and _last_written(partial) <= before:
                    _remove_folder(partial)

    def is_in_use(self, key: str) -> bool:
        """Whether somebody uses or fetches it, perhaps this process."""
        with contextlib.closing(self.lock_model(key)) as lock:
            return not lock.try_exclusive()

    def make_folder(self) -> None:
        try:
            (self.folder / "addresses").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CacheUnusable(
                f"{self.folder}: cannot be made: {error.strerror}; ${MODELS_ENV} names another"
            ) from error

    def _find_model(
        self, key: str, lease: FileLock | None, hash_files: HashFiles | None, verify: bool
    ) -> CachedModel | None:
        entry = self.folder / key
        record = read_record(entry)
        if record is None or (hash_files and not check_contents(entry, record, hash_files, verify=verify)):
            return None
        with contextlib.suppress(OSError):
            os.utime(entry / ENTRY)
        first = next(iter(record.find_files(entry).values()))
        path = first if record.format == "gguf" else first.parent
        return CachedModel(path, record.format, record.revision, sum(record.files.values()), lease)

    def _list_entries(self, fetching: str) -> list[CacheEntry]:
        """List what is on disk, whole or begun; nothing more comes of ``fetching``, for which room is sought."""
        found = []
        for key in {folder.name.removesuffix(PARTIAL) for folder in self.folder.iterdir()}:
            if not _KEY.fullmatch(key):
                continue
            whole, partial = self.folder / key, self.folder / f"{key}{PARTIAL}"
            begun = size_of(partial / FILES)
            in_use = self.is_in_use(key)
            coming = max(0, _total_size(partial) - begun) if in_use and key != fetching else 0
            used = max(modified_at(whole / ENTRY), modified_at(partial))
            found.append(CacheEntry(key, size_of(whole / FILES) + begun, used, in_use, coming))
        return found

    def _pointer_path(self, address: str) -> Path:
        return self.folder / "addresses" / f"{hashlib.sha256(address.encode()).hexdigest()[:40]}.json"


def _read_limit(variable: str) -> int | None:
    """The bytes that a variable of the environment allows; None where it is not set."""
    text = os.environ.get(variable)
    if text and not re.fullmatch(r"[1-9]\d{0,17}", text):
        raise CacheUnusable(f"${variable} is {text!r}: must be a whole number of bytes above 0")
    return int(text) if text else None


def _total_size(partial: Path) -> int:
    """Bytes that a model will have."""
    try:
        return int((partial / TOTAL).read_text())
    except (OSError, ValueError):
        return 0


def _last_written(partial: Path) -> float:
    return max(modified_at(path) for path in (partial, *partial.rglob("*")))


def _remove_folder(folder: Path) -> None:
    if folder.is_dir():
        # Without its record first: what is half removed is no model.
        (folder / ENTRY).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
