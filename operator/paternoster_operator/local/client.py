"""Asking a running ``paternoster up`` for what it has."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from paternoster_contract.access.keys import READER_TO_GATEWAY, derive_key, parse_keys
from paternoster_contract.http.paths import DEBUG_REQUESTS
from paternoster_operator.local.private import is_locked
from paternoster_operator.local.state import SESSION_FILE, sessions_folder, state_file

TIMEOUT_SECONDS = 5
LONGEST_RECORDS = 2**20
"""Bytes of an answer with records of calls."""
_ID = re.compile(r"[!-~]{1,128}")


def running_server() -> str | None:
    """URL of the operator of this user's session that started last; None where it does not run."""
    session = _running_session(state_file())
    return None if session is None else session["server"]


def fetch_list(server: str, path: str) -> list[dict[str, Any]]:
    """The objects of the list at ``path`` of the operator at ``server``; raises ``OSError`` naming ``server``."""
    try:
        items: list[dict[str, Any]] = json.loads(fetch(server, path))["items"]
    except ValueError as error:
        raise OSError(f"{server.rstrip('/')} is no operator's address: {error}") from error
    return items


def fetch(server: str, path: str, longest: int = -1) -> bytes:
    """The answer at ``path`` of the operator at ``server``, its first ``longest`` bytes; raises as :func:`fetch_list`.

    A session of this user is sent its key, and no other server is.
    """
    server = server.rstrip("/")
    try:
        with urlopen(Request(server + path, headers=_read_credentials(server)), timeout=TIMEOUT_SECONDS) as response:
            answer: bytes = response.read(longest)
    except ValueError as error:
        raise OSError(f"{server} is no operator's address: {error}") from error
    except HTTPError as error:
        whose = "; it answers the user who runs it" if error.code == 401 else ""
        raise OSError(f"{server} does not answer: {error.reason}{whose}") from error
    except OSError as error:
        raise OSError(f"{server} does not answer: {getattr(error, 'reason', error)}") from error
    return answer


def fetch_calls(
    server: str | None, roots: Path | None, request_id: str | None, slowest: int | None, tenant: str | None
) -> list[dict[str, Any]]:
    """Records of calls of the gateway at ``server``, or of this user's session; raises ``OSError`` naming the gateway.

    ``roots``: a file with the gateway's root key. ``request_id``: of one call; else the ``slowest``, of one ``tenant``
    or of all. Raises ``ValueError`` for an id that no call has.
    """
    if request_id is not None and _ID.fullmatch(request_id) is None:
        raise ValueError(f"--request: is {request_id[:64]!r}: must be 1 to 128 visible ASCII characters")
    session = _running_session(state_file()) if server is None else None
    if server is None and session is None:
        raise OSError("no 'paternoster up' runs on this machine: --server is a gateway's port of statistics")
    url = (session["endpoint"] if session is not None else server or "").rstrip("/")
    file = Path(session["folder"]) / "gateway" / "key" if session is not None and roots is None else roots
    try:
        keys = parse_keys(file.read_text(encoding="utf-8")) if file is not None else ()
    except (OSError, UnicodeDecodeError) as error:
        raise OSError(f"--gateway-key {file}: {error}") from error
    headers = {"Authorization": f"Bearer {derive_key(keys[0], READER_TO_GATEWAY)}"} if keys else {}
    query = {"slowest": str(slowest)} | ({"tenant": tenant} if tenant is not None else {})
    what = f"?{urlencode(query)}" if request_id is None else f"/{quote(request_id, safe='')}"
    try:
        with urlopen(Request(url + DEBUG_REQUESTS + what, headers=headers), timeout=TIMEOUT_SECONDS) as response:
            records: list[dict[str, Any]] = json.loads(response.read(LONGEST_RECORDS))["requests"]
    except HTTPError as error:
        raise OSError(f"{url}: HTTP {error.code}: {_read_refusal(error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise OSError(f"{url} is no gateway's address: {error}") from error
    except OSError as error:
        raise OSError(f"{url} does not answer: {getattr(error, 'reason', error)}") from error
    return records


def _read_refusal(error: HTTPError) -> str:
    """The words of a gateway's error; else those of its status."""
    try:
        return str(json.loads(error.read(LONGEST_RECORDS))["error"]["message"])[:1000]
    except (ValueError, TypeError, KeyError):
        return str(error.reason)


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
