"""Where a session on this machine keeps its state; nothing that takes time to import, as those who ask it are short."""

import os
from pathlib import Path


def state_folder() -> Path:
    """Where logs are kept (XDG base directories)."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "paternoster"


def state_file() -> Path:
    """Where a running session says how to reach it."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return (Path(runtime) / "paternoster" if runtime else state_folder()) / "up.json"
