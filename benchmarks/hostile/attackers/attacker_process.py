"""The hostile clients of one row, as a process that attacks while the block runs, as if on another machine."""

import asyncio
import os
import resource
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection

from harness.load import open_session, running
from hostile.attackers.attack_kinds import AttackKinds
from hostile.attackers.attack_rows import AttackRow

ALL_BEGUN_SECONDS = 1.0
"""In which all attackers begin."""
BEGIN_SECONDS = 20.0
"""The longest wait for the first request of every attacker: thousands may take longer, and are felt by then."""
START_SECONDS = 2.0
"""From the first request of every attacker until they are felt."""
END_SECONDS = 20.0
"""The longest wait for the process to end."""
NICENESS = 5
"""Below the measured client, and not so low that a busy machine ends the attack."""


@asynccontextmanager
async def run_attackers(urls: Sequence[str], row: AttackRow, answers: Counter[str]) -> AsyncIterator[None]:
    """Attack ``urls`` (gateways, in turn) as ``row`` says; ``answers``, by kind and status, are added at the end."""
    context = get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=attack_until_told, args=(list(urls), row.kind, row.attackers, theirs), daemon=True)
    process.start()
    try:
        await asyncio.to_thread(pipe.poll, BEGIN_SECONDS)
        await asyncio.sleep(START_SECONDS)
        yield
        pipe.send(None)
        await asyncio.to_thread(process.join, END_SECONDS)
        while pipe.poll():
            answers.update(pipe.recv())
    finally:
        process.kill()


def attack_until_told(urls: Sequence[str], kind: str, attackers: int, pipe: Connection) -> None:
    """Send a message once all attackers of this process have begun, and at the end their answers."""
    os.nice(NICENESS)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def attack() -> Counter[str]:
        async with open_session() as session:
            attacks, end = AttackKinds(urls, session), asyncio.create_task(asyncio.to_thread(pipe.recv))

            async def begin(number: int) -> None:
                await asyncio.sleep(ALL_BEGUN_SECONDS * number / attackers)
                await attacks.repeat(kind)

            async with running(*map(begin, range(attackers))):
                await asyncio.sleep(ALL_BEGUN_SECONDS)
                pipe.send({})
                await end
        return attacks.answers

    pipe.send(asyncio.run(attack()))
