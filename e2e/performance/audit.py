"""What one user asked of the API server, from its audit log."""

import json
from collections import Counter
from pathlib import Path

STREAMS = ("watch",)
"""Verbs of requests that end when the server likes, and cost nothing meanwhile."""


def requests(log: Path, begin: int, end: int, user: str) -> Counter[str]:
    """How often ``user`` asked what, such as ``patch llmdeployments/status``, in the bytes ``begin`` to ``end``."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read(end - begin).splitlines()
    counted: Counter[str] = Counter()
    for line in lines:
        if user.encode() not in line:
            continue
        event = json.loads(line)
        if event["user"]["username"] != user or event["stage"] != "ResponseComplete" or event["verb"] in STREAMS:
            continue
        target = event.get("objectRef", {})
        what = "/".join(filter(None, (target.get("resource"), target.get("subresource")))) or event["requestURI"]
        counted[f"{event['verb']} {what}"] += 1
    return counted
