"""The demo's fleet: ``paternoster up`` as a process of its own, and its record as it grows."""

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from demo_record import Decision, Record

STOP_WITHIN = 60.0
"""Seconds for draining; then the process is killed."""


class FleetError(Exception):
    """The fleet did not do what the story needs."""


class Fleet:
    """``paternoster up -f MANIFEST`` with its record, log and endpoint under one folder."""

    def __init__(self, manifest: Path, output: Path) -> None:
        self.manifest = manifest
        self.log = output / "up.log"
        self._record = output / "run.jsonl"
        self._process: asyncio.subprocess.Process | None = None
        output.mkdir(parents=True, exist_ok=True)
        self._record.write_bytes(b"")

    async def start(self) -> None:
        command = Path(sys.executable).with_name("paternoster")
        flags: list[str | Path] = ["up", "-f", self.manifest, "--port", "0", "--record", self._record, "--no-view"]
        flags += ["--log-dir", self.log.parent / "logs"]
        with self.log.open("wb") as log:
            # a session of its own: Ctrl-C at the terminal reaches it once, through stop()
            self._process = await asyncio.create_subprocess_exec(
                command, *flags, stdout=log, stderr=log, start_new_session=True
            )

    def check(self) -> None:
        """Raises :class:`FleetError` when the process has ended."""
        if self._process is not None and self._process.returncode is not None:
            last = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
            raise FleetError(f"paternoster up ended with exit code {self._process.returncode}: {' / '.join(last)}")

    async def stop(self) -> int:
        """Interrupt, wait for the drain, and return the exit code; a second call changes nothing."""
        process = self._process
        if process is None:
            return 0
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            try:
                await asyncio.wait_for(process.wait(), STOP_WITHIN)
            except TimeoutError:
                process.kill()
        return await process.wait()

    async def follow(self, record: Record, on_decision: Callable[[Decision], None]) -> None:
        """Feed each line of the record file to ``record`` as it is written; runs until cancelled."""
        with self._record.open(encoding="utf-8") as lines:
            part = ""
            while True:
                part += lines.readline()
                if not part.endswith("\n"):
                    await asyncio.sleep(0.2)
                    continue
                for decision in record.feed(part):
                    on_decision(decision)
                part = ""
