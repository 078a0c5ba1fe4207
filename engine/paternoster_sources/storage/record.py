"""``entry.json``: which files a model in the cache has, and what their bytes must be.

A file's size is compared at each start. Its bytes are hashed where its time is not the recorded one, so that what did
not change is not read twice.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from paternoster_sources import names
from paternoster_sources.plan import Algorithm, Digest
from paternoster_sources.storage.files import write_text

ENTRY = "entry.json"
FILES = "files"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileToHash:
    path: Path
    algorithm: Algorithm


HashFiles = Callable[[Sequence[FileToHash]], list[Digest]]
"""Their digests, in order."""


class FileContent(BaseModel):
    """One file's bytes."""

    digest: Digest
    mtime_ns: int
    """Time of the file's change when its bytes had that digest."""


class Record(BaseModel):
    address: str
    revision: str
    format: Literal["gguf", "safetensors"]
    name: str
    """Name of the folder with the files."""
    files: dict[str, int] = Field(min_length=1)
    """Their bytes, by name."""
    contents: dict[str, FileContent] = Field(default_factory=dict)
    """Contents by name; without those that an earlier version fetched."""

    def find_files(self, entry: Path) -> dict[str, Path]:
        folder = entry / FILES / names.check_name(self.name)
        return {name: folder / names.check_name(name) for name in self.files}


def read_record(entry: Path) -> Record | None:
    """None where the model is not there, or lacks a file or a part of one."""
    try:
        record = Record.model_validate_json((entry / ENTRY).read_text())
    except (OSError, ValidationError, UnicodeDecodeError):
        return None
    paths = record.find_files(entry)
    if any(not path.is_file() or path.stat().st_size != record.files[name] for name, path in paths.items()):
        return None
    return record


def describe_contents(folder: Path, digests: Mapping[str, Digest]) -> dict[str, FileContent]:
    """What is recorded of files in ``folder`` that were just written."""
    return {
        name: FileContent(digest=digest, mtime_ns=(folder / name).stat().st_mtime_ns)
        for name, digest in digests.items()
    }


def check_contents(entry: Path, record: Record, hash_files: HashFiles, *, verify: bool) -> bool:
    """Whether the files have the recorded bytes; of files without a record, what they have is recorded.

    With ``verify`` all are hashed, else those that changed since. A model with other bytes loses its record, and with
    it is none. Raises ``OSError``.
    """
    paths = record.find_files(entry)
    times = {name: path.stat().st_mtime_ns for name, path in paths.items()}
    # Where nothing can be recorded, the same would be hashed at each start.
    can_record = os.access(entry, os.W_OK)
    chosen = [name for name in paths if verify or _is_changed(record.contents.get(name), times[name], can_record)]
    if not chosen:
        return True
    log.info("model %s: %d of its %d cached files are hashed", entry.name, len(chosen), len(paths))
    expected = {name: record.contents[name].digest for name in chosen if name in record.contents}
    to_hash = [FileToHash(paths[name], expected[name].algorithm if name in expected else "sha256") for name in chosen]
    digests = dict(zip(chosen, hash_files(to_hash), strict=True))
    wrong = [name for name, digest in expected.items() if digests[name] != digest]
    for name in wrong:
        log.warning(
            "model %s: the cached file %s: its %s is %s: must be %s; the model is removed from the cache and fetched "
            "again",
            entry.name,
            name,
            expected[name].algorithm,
            digests[name].value,
            expected[name].value,
        )
    if wrong:
        (entry / ENTRY).unlink(missing_ok=True)
        return False
    record.contents |= {name: FileContent(digest=digests[name], mtime_ns=times[name]) for name in chosen}
    with contextlib.suppress(OSError):
        write_text(entry / ENTRY, record.model_dump_json())
    return True


def _is_changed(content: FileContent | None, mtime_ns: int, can_record: bool) -> bool:
    return can_record if content is None else content.mtime_ns != mtime_ns
