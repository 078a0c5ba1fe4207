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
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from paternoster_contract.labels import MODELS_ENV, MODELS_LIMIT_ENV
from paternoster_sources import names
from paternoster_sources.errors import CacheUnusable, NoSpace
from paternoster_sources.plan import Plan
from paternoster_sources.storage.eviction import Entry, choose_evicted
from paternoster_sources.storage.lock import FileLock

DEFAULT_FOLDER = "~/.cache/paternoster/models"
PARTIAL = ".partial"
FILES = "files"
TOTAL = "total"
"""How many bytes one that is begun will have."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*-[0-9a-f]{20}")


class _Record(BaseModel):
    """``entry.json``."""

    address: str
    revision: str
    format: Literal["gguf", "safetensors"]
    name: str
    """Of the folder with the files."""
    files: dict[str, int] = Field(min_length=1)
    """Their bytes, by name."""


@dataclass(frozen=True, slots=True)
class Model:
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


class Cache:
    """Raises :class:`CacheUnusable` where its folder cannot be used."""

    def __init__(self, folder: Path, limit: int | None = None, free: Callable[[Path], int] = free_space) -> None:
        """``limit``: bytes of all models; none are evicted without one. ``free`` is a seam for tests."""
        self.folder, self.limit, self._free = folder, limit, free

    @classmethod
    def from_env(cls) -> "Cache":
        folder = Path(os.environ.get(MODELS_ENV) or DEFAULT_FOLDER).expanduser().absolute()
        limit_text = os.environ.get(MODELS_LIMIT_ENV)
        if limit_text and not re.fullmatch(r"[1-9]\d{0,17}", limit_text):
            raise CacheUnusable(f"${MODELS_LIMIT_ENV} is {limit_text!r}: must be a whole number of bytes above 0")
        return cls(folder, int(limit_text) if limit_text else None)

    def find_model(self, address: str) -> Model | None:
        """What ``address`` led to when it was last asked, if it is still there."""
        try:
            key = json.loads(self._pointer_path(address).read_text()).get("key")
        except (OSError, ValueError, AttributeError):
            return None
        return self.lease_model(key) if isinstance(key, str) and _KEY.fullmatch(key) else None

    def lease_model(self, key: str) -> Model | None:
        """The whole model ``key``, leased; None where there is none."""
        if not (self.folder / key).is_dir():
            return None
        try:
            lease = self.lock_model(key)
        except OSError:
            # A folder that others filled and that we may only read, without a lock file that we may open.
            lease = None
        if lease is not None:
            lease.wait_shared()
        model = self._find_model(key, lease)
        if model is None and lease is not None:
            lease.close()
        return model

    def has_model(self, key: str) -> bool:
        """Whether the model ``key`` is whole."""
        return self._find_model(key, None) is not None

    def lock_model(self, key: str) -> FileLock:
        return FileLock(self.folder / f"{key}.lock")

    def record_address(self, address: str, key: str) -> None:
        """Remember that ``address`` leads to ``key``."""
        _write_text(self._pointer_path(address), json.dumps({"address": address, "key": key}))

    def prepare_folder(self, plan: Plan) -> Path:
        """The folder to fetch the files of ``plan`` into, perhaps with some of an earlier attempt in it.

        To be called with its lock held exclusively. Nothing is written before there is room for all of it: raises
        :class:`NoSpace`.
        """
        partial = self.folder / f"{plan.key}{PARTIAL}"
        files = partial / FILES / plan.address.name
        with contextlib.closing(self.lock_model("room")) as room:
            # One at a time: what another process is about to write counts as written.
            room.wait_exclusive()
            self._make_room(plan, plan.total - min(_size_of(partial), plan.total))
            files.mkdir(parents=True, exist_ok=True)
            _write_text(partial / TOTAL, str(plan.total))
        return files

    def _make_room(self, plan: Plan, need: int) -> None:
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

    def complete_model(self, plan: Plan) -> None:
        """Make what :meth:`prepare_folder` gave a model, all at once; its files must be whole and on disk."""
        partial = self.folder / f"{plan.key}{PARTIAL}"
        whole = self.folder / plan.key
        record = _Record(
            address=plan.address.text,
            revision=plan.revision,
            format=plan.format,
            name=plan.address.name,
            files={names.base_name(file.name): file.size for file in plan.files},
        )
        _write_text(partial / "entry.json", record.model_dump_json())
        (partial / TOTAL).unlink(missing_ok=True)
        _sync_folder(partial / FILES / plan.address.name)
        _sync_folder(partial)
        if whole.exists():
            shutil.rmtree(whole)
        partial.rename(whole)
        _sync_folder(self.folder)

    def evict_model(self, key: str) -> bool:
        """Remove a model, unless somebody uses or fetches it."""
        with contextlib.closing(self.lock_model(key)) as lock:
            if not lock.try_exclusive():
                return False
            for folder in (self.folder / key, self.folder / f"{key}{PARTIAL}"):
                if folder.is_dir():
                    # Without its record first: what is half removed is no model.
                    (folder / "entry.json").unlink(missing_ok=True)
                    shutil.rmtree(folder, ignore_errors=True)
            return True

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

    def _find_model(self, key: str, lease: FileLock | None) -> Model | None:
        entry = self.folder / key
        try:
            record = _Record.model_validate_json((entry / "entry.json").read_text())
        except (OSError, ValidationError, UnicodeDecodeError):
            return None
        folder = entry / FILES / names.check_name(record.name)
        paths = {folder / names.check_name(name): size for name, size in record.files.items()}
        if any(not path.is_file() or path.stat().st_size != size for path, size in paths.items()):
            return None
        with contextlib.suppress(OSError):
            os.utime(entry / "entry.json")
        path = next(iter(paths)) if record.format == "gguf" else folder
        return Model(path, record.format, record.revision, sum(paths.values()), lease)

    def _list_entries(self, fetching: str) -> list[Entry]:
        """By what is on disk, whole or begun; nothing more comes of ``fetching``, for which room is sought."""
        found = []
        for key in {folder.name.removesuffix(PARTIAL) for folder in self.folder.iterdir()}:
            if not _KEY.fullmatch(key):
                continue
            whole, partial = self.folder / key, self.folder / f"{key}{PARTIAL}"
            begun = _size_of(partial)
            in_use = self.is_in_use(key)
            coming = max(0, _total_size(partial) - begun) if in_use and key != fetching else 0
            used = max(_modified_at(whole / "entry.json"), _modified_at(partial))
            found.append(Entry(key, _size_of(whole) + begun, used, in_use, coming))
        return found

    def _pointer_path(self, address: str) -> Path:
        return self.folder / "addresses" / f"{hashlib.sha256(address.encode()).hexdigest()[:40]}.json"


def _size_of(entry: Path) -> int:
    """Bytes of a model's files, whole or begun."""
    total = 0
    for file in (entry / FILES).rglob("*"):
        with contextlib.suppress(OSError):
            total += file.lstat().st_size if file.is_file() else 0
    return total


def _total_size(partial: Path) -> int:
    """Bytes that a model will have."""
    try:
        return int((partial / TOTAL).read_text())
    except (OSError, ValueError):
        return 0


def _modified_at(path: Path) -> float:
    """Seconds since the epoch; 0 where there is nothing."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _write_text(path: Path, text: str) -> None:
    """Whole or not at all."""
    # Not by the process's number: in a container it is 1.
    other = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with other.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    other.replace(path)


def _sync_folder(folder: Path) -> None:
    """What was renamed in it stays renamed after a crash."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
