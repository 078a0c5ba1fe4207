"""A chat request passes through few files from its route to the scheduler, and through each of them straight on."""

import re
from collections import Counter
from typing import Any

from tests.engine.server.request_walk import ROOT, recorded_walk, stays_of

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
SERVER_AND_CORE = ("engine/paternoster_engine/server/", "engine/paternoster_engine/core/")
"""What the request passes through; the rest are libraries that one file of these calls."""
SCHEDULER = "engine/paternoster_engine/core/scheduler.py"


async def test_walk_of_a_chat_request_is_straight_and_as_documented(serve: Any) -> None:
    with recorded_walk() as walk:
        async with serve("one two") as server:
            # The first makes what the later ones find made.
            for _ in range(2):
                walk.entries.clear()
                assert (await server.client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    functions = [entry.function for entry in walk.entries]
    entries = walk.entries[functions.index("chat_completions") : functions.index("Scheduler.add") + 1]
    # The engine's thread ticks meanwhile.
    entries = [entry for entry in entries if entry.thread != "engine-loop" or entry.file == SCHEDULER]
    entries = [entry for entry in entries if entry.file.startswith(SERVER_AND_CORE)]
    stays = stays_of(entries)
    assert {file: count for file, count in Counter(stays).items() if count > 2} == {}
    assert len(set(stays)) <= 26, sorted(set(stays))
    # Files that hand the request on; the others return a value to where they are called.
    calling = {entry.caller for entry in entries if entry.caller != entry.file} | {SCHEDULER}
    stations = [file for file in dict.fromkeys(stays) if file in calling]
    assert len(stations) <= 10, stations
    page = (ROOT / "docs/structure.md").read_text(encoding="utf-8")
    section = page.partition("### From the route to the scheduler\n")[2].partition("\n## ")[0]
    assert stations == [
        f"engine/paternoster_engine/{path}" for path in re.findall(r"^\d+\. `(\S+)`", section, re.MULTILINE)
    ]
