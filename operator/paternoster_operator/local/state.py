"""Where a session on this machine keeps its state; nothing that takes time to import, as those who ask it are short."""

import os
from pathlib import Path

SESSION_FILE = "up.json"
"""How a session is reached, in JSON: ``server``, ``endpoint``, ``pid``, its ``folder`` and its server's ``key``."""


def state_folder() -> Path:
    """Where logs are kept (XDG base directories)."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "paternoster"


def state_file() -> Path:
    """The session file of the session that started last."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return (Path(runtime) / "paternoster" if runtime else state_folder()) / SESSION_FILE


def sessions_folder() -> Path:
    """Has a folder for each session, which its process locks while it runs, with its session file."""
    return state_folder() / "sessions"
