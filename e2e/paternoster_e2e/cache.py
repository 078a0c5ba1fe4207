"""Where built components are kept between runs, outside the checkout."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def cache_folder() -> Path:
    """``$PATERNOSTER_CACHE``, else the XDG cache folder."""
    given = os.environ.get("PATERNOSTER_CACHE")
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else root / "paternoster"


def digest(paths: Iterable[Path], *words: str) -> str:
    """Short name for the contents of ``paths`` and ``words``: the key of what is built from them."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(path.read_bytes())
    for word in words:
        total.update(b"\0" + word.encode())
    return total.hexdigest()[:12]
