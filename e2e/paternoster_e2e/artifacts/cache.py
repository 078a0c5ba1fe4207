"""Where built components are kept between runs, outside the checkout."""

import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """``$PATERNOSTER_CACHE``, else the XDG cache folder."""
    given = os.environ.get("PATERNOSTER_CACHE")
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else root / "paternoster"


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Wait until no other process is in here with the same ``name``: suites run side by side and share the cache."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def digest(paths: Iterable[Path], *words: str) -> str:
    """Short name for the contents of ``paths`` and ``words``: the key of what is built from them."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(path.read_bytes())
    for word in words:
        total.update(b"\0" + word.encode())
    return total.hexdigest()[:12]
