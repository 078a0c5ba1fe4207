"""Asking a running ``paternoster up`` for what it has."""

import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from paternoster_operator.local.private import is_locked
from paternoster_operator.local.state import SESSION_FILE, sessions_folder, state_file

TIMEOUT_SECONDS = 5


def running_server() -> str | None:
    """URL of the operator of this user's session that started last; None where it does not run."""
    session = _running_session(state_file())
    return None if session is None else session["server"]


def fetch_list(server: str, path: str) -> list[dict[str, Any]]:
    """The objects of the list at ``path`` of the operator at ``server``; raises ``OSError`` naming ``server``.

    A session of this user is sent its key, and no other server is.
    """
    server = server.rstrip("/")
    try:
        with urlopen(Request(server + path, headers=_read_credentials(server)), timeout=TIMEOUT_SECONDS) as response:
            items: list[dict[str, Any]] = json.load(response)["items"]
    except ValueError as error:
        raise OSError(f"{server} is no operator's address: {error}") from error
    except HTTPError as error:
        whose = "; it answers the user who runs it" if error.code == 401 else ""
        raise OSError(f"{server} does not answer: {error.reason}{whose}") from error
    except OSError as error:
        raise OSError(f"{server} does not answer: {getattr(error, 'reason', error)}") from error
    return items


def _read_credentials(server: str) -> dict[str, str]:
    """Headers with the key of the session at ``server``; empty where none runs there."""
    for file in (state_file(), *sessions_folder().glob(f"*/{SESSION_FILE}")):
        session = _running_session(file)
        if session is not None and session["server"] == server:
            return {"Authorization": f"Bearer {session['key']}"}
    return {}


def _running_session(file: Path) -> dict[str, str] | None:
    """What a session file says; None where there is none, or its session has ended.

    The port of one that was killed may have been taken by another user.
    """
    try:
        session: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return session if is_locked(Path(session.get("folder", ""))) else None
