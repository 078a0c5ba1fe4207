"""Hostile clients of gateways, in a process of their own, as if on another machine than the measured client.

    python benchmarks hostile.attacks http://127.0.0.1:8080 http://127.0.0.1:8081 --attackers 4 --kind "long prompts"

They attack until its standard input ends. It prints when all have begun, and at the end how many answers of each status
they got, in JSON.
"""

import asyncio
import json
import os
import resource
import sys
from collections import Counter
from collections.abc import Sequence

from harness.arguments import RunnerParser
from harness.load import open_session
from hostile.attackers.attack_kinds import AttackKinds

START_SECONDS = 1.0
"""In which all attackers begin."""
STARTED = "started"
"""Its first line, once they have."""
NICENESS = 5
"""Below the measured client, and not so low that a busy machine ends the attack."""


async def attack(urls: Sequence[str], kind: str, attackers: int) -> Counter[str]:
    """A number of attackers at once, until standard input ends; answers by kind and status."""
    async with open_session() as session:
        attacks = AttackKinds(urls, session)
        end = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        tasks = []
        for _ in range(attackers):
            tasks.append(asyncio.create_task(attacks.repeat(kind)))
            await asyncio.sleep(START_SECONDS / attackers)
        print(STARTED, flush=True)
        await end
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return attacks.answers


def main() -> int:
    parser = RunnerParser(__doc__)
    parser.add_argument("urls", nargs="+", help="of gateways, asked in turn")
    parser.add_number("--attackers", 4, "at once")
    parser.add_argument("--kind", required=True, help="of their requests")
    args = parser.parse_args()
    os.nice(NICENESS)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(json.dumps(asyncio.run(attack(args.urls, args.kind, args.attackers))))
    return 0
