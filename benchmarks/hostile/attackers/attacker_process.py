"""The hostile clients of one row, as a process that attacks while the block runs."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from hostile.attackers.attack_rows import AttackRow
from hostile.shared_fleets import BENCHMARKS

BEGIN_SECONDS = 20.0
"""The longest wait for the first request of every attacker: thousands may take longer, and are felt by then."""
START_SECONDS = 2.0
"""From the first request of every attacker until they are felt."""
END_SECONDS = 20.0
"""The longest wait for the process to end."""


@asynccontextmanager
async def run_attackers(urls: Sequence[str], row: AttackRow, answers: Counter[str]) -> AsyncIterator[None]:
    """Attack ``urls`` (gateways, in turn) as ``row`` says; ``answers``, by kind and status, are added at the end."""
    command = [sys.executable, str(BENCHMARKS), "hostile.attacks", *urls]
    command += ["--attackers", str(row.attackers), "--kind", row.kind]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(TimeoutError):
            await asyncio.wait_for(process.stdout.readline(), BEGIN_SECONDS)
        await asyncio.sleep(START_SECONDS)
        yield
        process.stdin.close()
        with suppress(TimeoutError):
            printed, _ = await asyncio.wait_for(process.communicate(), END_SECONDS)
            answers.update(json.loads(printed.splitlines()[-1]))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
