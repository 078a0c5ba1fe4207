"""What transformers computed, kept between runs: it is slow to load and slow to ask, and says the same every time.

Kept in the user's cache, by all that an answer depends on: versions, the model's file, the question, and the code that
asks. To have everything computed anew, delete the folder.
"""

import fcntl
import hashlib
import inspect
import json
import os
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any


class AnswerCache:
    """Answers about one model file."""

    def __init__(self, model: Path) -> None:
        cache = os.environ.get("PATERNOSTER_CACHE") or (
            Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paternoster"
        )
        file = hashlib.sha256(model.read_bytes()).hexdigest()
        self._folder = Path(cache) / "oracle" / _digest([version("transformers"), version("torch"), file])

    def answer(self, compute: Callable[..., Any], *question: Any) -> Any:
        """``compute(*question)``, which is JSON as ``question`` is; computed where it is not kept."""
        path = self._folder / f"{compute.__name__}-{_digest([inspect.getsource(compute), question])}.json"
        self._once(path, lambda temporary: temporary.write_text(json.dumps(compute(*question))))
        return json.loads(path.read_text())

    def file(self, make: Callable[[Path], Any]) -> Path:
        """A file that ``make`` writes."""
        path = self._folder / f"{make.__name__}-{_digest(inspect.getsource(make))}"
        self._once(path, make)
        return path

    def _once(self, path: Path, write: Callable[[Path], Any]) -> None:
        """Whole or not at all, and by one of several processes; the others wait."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                    temporary = Path(folder) / path.name
                    write(temporary)
                    temporary.rename(path)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:24]
