"""Asking a running ``paternoster up`` for its LLMDeployments."""

import json
from typing import Any
from urllib.request import urlopen

from paternoster_contract.labels import OBJECTS
from paternoster_operator.local.state import state_file

TIMEOUT_SECONDS = 5


def running_server() -> str | None:
    """URL of the operator of this machine's session, as it said itself; None where none runs."""
    try:
        server: str = json.loads(state_file().read_text(encoding="utf-8"))["server"]
    except FileNotFoundError:
        return None
    return server


def fetch_objects(server: str) -> list[dict[str, Any]]:
    """Every LLMDeployment that the operator at ``server`` has; raises ``OSError`` naming ``server``."""
    try:
        with urlopen(server.rstrip("/") + OBJECTS, timeout=TIMEOUT_SECONDS) as response:
            items: list[dict[str, Any]] = json.load(response)["items"]
    except ValueError as error:
        raise OSError(f"{server} is no operator's address: {error}") from error
    except OSError as error:
        raise OSError(f"{server} does not answer: {getattr(error, 'reason', error)}") from error
    return items
