"""A program that is kept running: probed, and started again with backoff when it ends."""

import asyncio
import logging
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from paternoster_contract.supervise import supervise_task
from paternoster_http.bounded_answers import READ_BUFFER, bounded_connector
from paternoster_operator.local.ports import ReservedPort
from paternoster_operator.local.probe import Probes, http_check, run_probes
from paternoster_operator.local.process import Process

log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 60.0
STEADY_SECONDS = 60.0
"""A run that lasted this long is forgiven: the next end brings the first backoff again."""
SERVED_SECONDS = 10.0
"""A run that had been ready for this long, too: starts of large models are back-off enough."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How one run begins. ``url`` is where it will listen."""

    command: Sequence[str]
    env: Mapping[str, str]
    url: str
    ports: Sequence[ReservedPort] = ()
    """Ports that it inherits."""
    orphan_signal: signal.Signals = signal.SIGTERM
    """What it gets when this process ends without ending it."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended."""

    status: int
    """Its exit status, negative for a signal."""
    why: str
    """Why it was killed, and the line of its log that says most of why it ended."""
    began: datetime
    ended: datetime


class Program:
    """``launch()`` is called for each run; ``on_change()`` after each start, end and change of readiness."""

    def __init__(
        self,
        name: str,
        launch: Callable[[], Launch],
        probes: Probes,
        log_file: Path,
        on_change: Callable[[], None],
        find_cause: Callable[[Sequence[str]], str] = lambda lines: lines[-1].strip() if lines else "",
    ) -> None:
        """``find_cause``: which of the last lines of its log says why it ended."""
        self.name = name
        self.log_file = log_file
        self.ready_since: float | None = None
        """On the monotonic clock; None while it is not ready."""
        self.restarts = 0
        self.last_end = ""
        """How the last run ended, in words."""
        self.last_run: RunEnd | None = None
        """End of the last run; None before the first end, and where it could not start."""
        self.began: datetime | None = None
        """When its present run did."""
        self._launch = launch
        self._probes = probes
        self._on_change = on_change
        self._find_cause = find_cause
        self._served_since: float | None = None
        """When the present run was ready first, on the monotonic clock."""
        self._process: Process | None = None
        self._stopping = False
        self._changed = asyncio.Event()
        self._task = supervise_task(self._keep_running, "keep-running")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.alive

    @property
    def ready(self) -> bool:
        return self.ready_since is not None

    async def first_run(self) -> bool:
        """Wait until the first run is ready, or has ended; returns whether it is ready."""
        while not self.ready and not self.last_end:
            self._changed.clear()
            await self._changed.wait()
        return self.ready

    def terminate(self) -> None:
        """Ask it to end, and do not start it again; :meth:`stop` waits for that."""
        if not self._stopping and self._process is not None and self.running:
            self._process.terminate()
        self._stopping = True

    async def stop(self, grace_seconds: float) -> None:
        """SIGTERM, SIGKILL after ``grace_seconds``; returns when it is gone."""
        self.terminate()
        if self.running:
            await asyncio.wait({self._task}, timeout=grace_seconds)
        self.kill()
        if not self.running:
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def wait_end(self) -> None:
        """Return when it is gone, after :meth:`terminate`."""
        await asyncio.wait({self._task})

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def _keep_running(self) -> None:
        failures = 0
        async with aiohttp.ClientSession(connector=bounded_connector(), read_bufsize=READ_BUFFER) as session:
            while not self._stopping:
                started = time.monotonic()
                self.last_end = await self._run_once(session)
                self._set_ready(False)
                self._report_change()
                if self._stopping:
                    return
                now = time.monotonic()
                served = 0.0 if self._served_since is None else now - self._served_since
                failures = 0 if now - started >= STEADY_SECONDS or served >= SERVED_SECONDS else failures
                delay = backoff_seconds(failures)
                log.warning("%s: %s; again in %.0f s; see %s", self.name, self.last_end, delay, self.log_file)
                await asyncio.sleep(delay)
                failures += 1
                self.restarts += 1

    async def _run_once(self, session: aiohttp.ClientSession) -> str:
        """One run from start to end; returns how it ended."""
        self._served_since = None
        try:
            launch = self._launch()
        except OSError as error:
            self.last_run = None
            return f"cannot start: {error}"
        try:
            process = self._process = await Process.start(
                launch.command,
                launch.env,
                self.log_file,
                inherited=[port.fileno() for port in launch.ports],
                orphan_signal=launch.orphan_signal,
            )
        except OSError as error:
            self.last_run = None
            file = "" if error.filename in (None, launch.command[0]) else f"{error.filename}: "
            return f"cannot start {launch.command[0]}: {file}{error.strerror}"
        self.began = began = datetime.now(UTC)
        if self._stopping:
            process.terminate()
        self._report_change()
        probes = asyncio.create_task(run_probes(self._probes, http_check(session, launch.url), self._on_ready))
        # One that ends may have stopped listening while it finishes its answers: how long that takes is for stop().
        probes.add_done_callback(lambda _: None if self._stopping else process.kill())
        status = await process.wait()
        for port in launch.ports:
            port.refuse_clients()
        killed = probes.result() if probes.done() else ""
        probes.cancel()
        await asyncio.gather(probes, return_exceptions=True)
        why = ": ".join(filter(None, (killed, self._find_cause(process.last_lines()))))
        self.last_run = RunEnd(status, why, began, datetime.now(UTC))
        return ": ".join(filter(None, (_describe_end(status), why)))

    def _on_ready(self, ready: bool) -> None:
        self._set_ready(ready)
        self._report_change()

    def _set_ready(self, ready: bool) -> None:
        self.ready_since = time.monotonic() if ready else None
        self._served_since = self._served_since or self.ready_since

    def _report_change(self) -> None:
        self._changed.set()
        self._on_change()


def backoff_seconds(failures: int) -> float:
    """Wait before the next run after ``failures`` earlier short ones: doubling, up to the longest."""
    return float(min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failures, 30), LONGEST_BACKOFF_SECONDS))


def find_program(name: str) -> str:
    """The program beside this interpreter, else on PATH; a path stays as it is."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name) or name


def _describe_end(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"killed by signal {-status}"
