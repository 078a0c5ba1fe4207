"""Files of the cache's own: written whole, measured, and removed where a killed process left them."""

import contextlib
import os
import re
import secrets
import time
from pathlib import Path

UNFINISHED_SECONDS = 3600.0
"""Age above which an unfinished file was left by a killed process: one is written in milliseconds."""

_UNFINISHED = re.compile(r"(entry\.json|total|[0-9a-f]{40}\.json)\.[0-9a-f]{16}")


def write_text(path: Path, text: str) -> None:
    """Whole or not at all."""
    # Not by the process's number: in a container it is 1.
    other = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with other.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    other.replace(path)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes left of :func:`write_text` in the folders of ``folder``."""
    before = time.time() - UNFINISHED_SECONDS
    for path in folder.glob("*/*"):
        if _UNFINISHED.fullmatch(path.name) and 0 < modified_at(path) < before:
            with contextlib.suppress(OSError):
                path.unlink()


def sync_folder(folder: Path) -> None:
    """What was renamed in it stays renamed after a crash."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def size_of(folder: Path) -> int:
    """Bytes of all files below ``folder``."""
    total = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += file.lstat().st_size if file.is_file() else 0
    return total


def modified_at(path: Path) -> float:
    """Seconds since the epoch; 0 where there is nothing."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
