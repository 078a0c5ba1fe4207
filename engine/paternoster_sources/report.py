"""Reports of how far a download is: a bar on a terminal, and a file for those who watch a container."""

import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import TracebackType

from paternoster_contract.fetch_status import FetchStatus, clip_message
from paternoster_sources.errors import SourceError
from paternoster_sources.progress import FetchProgress, Report

LOG_EVERY = 10.0
"""Seconds between two lines of a log that say the same."""

log = logging.getLogger(__name__)


def of_progress(progress: FetchProgress) -> FetchStatus:
    """Status of a fetch for programs."""
    rate = round(progress.rate, 1)
    return FetchStatus(state=progress.state, done=progress.done, total=progress.total, rate=rate)


def of_model(path: Path, revision: str) -> FetchStatus:
    return FetchStatus(state="ready", path=os.fsencode(path).decode(errors="replace"), revision=revision)


def of_error(error: SourceError) -> FetchStatus:
    return FetchStatus(state="failed", reason=error.reason, message=clip_message(str(error)), transient=error.transient)


class StatusFile:
    """One line (:class:`FetchStatus`), written anew in place: a container's termination log cannot be replaced."""

    def __init__(self, path: Path) -> None:
        """Raises ``OSError`` where the file cannot be written; later a download is worth more than its report."""
        self._path = path
        self._write(FetchStatus(state="listing"))

    def publish(self, status: FetchStatus) -> None:
        with suppress(OSError):
            self._write(status)

    def _write(self, status: FetchStatus) -> None:
        line = f"{status.to_json_line()}\n".encode(errors="replace")
        number = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(number, line, 0)
            os.ftruncate(number, len(line))
        finally:
            os.close(number)


class _TerminalBar:
    """A bar of ``rich`` on standard error."""

    def __init__(self, address: str) -> None:
        from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
        from rich.progress import Progress as Columns

        from paternoster_contract.cli.console import QuotingConsole

        self._columns = Columns(
            "{task.description}",
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=QuotingConsole(stderr=True),
        )
        self._address = address
        self._task = self._columns.add_task(address, total=None)

    def __enter__(self) -> Report:
        self._columns.start()
        return self._show_progress

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._columns.stop()

    def _show_progress(self, progress: FetchProgress) -> None:
        waiting = progress.state == "waiting"
        self._columns.update(
            self._task,
            description=f"{self._address}, which another process fetches" if waiting else self._address,
            completed=progress.done,
            total=progress.total or None,
        )


def log_progress(address: str, clock: Callable[[], float] = time.monotonic) -> Report:
    """Lines of a log: of what changed, and now and then how far it is."""
    last: tuple[str, float] = ("", 0.0)

    def report_progress(progress: FetchProgress) -> None:
        nonlocal last
        if progress.state == last[0] and clock() - last[1] < LOG_EVERY:
            return
        last = (progress.state, clock())
        if progress.state == "waiting":
            log.info("model %s: another process fetches it", address)
        elif progress.state == "ready":
            log.info("model %s: its %.0f MiB are here", address, progress.total / 2**20)
        else:
            mib = (progress.done / 2**20, progress.total / 2**20, progress.rate / 2**20)
            log.info("model %s: %.0f of %.0f MiB are here, %.1f MiB/s", address, *mib)

    return report_progress


def _ignore_progress(_: FetchProgress) -> None:
    """Where no terminal shows a bar."""


def terminal_bar(address: str) -> AbstractContextManager[Report]:
    """A bar, if standard error is a terminal."""
    return _TerminalBar(address) if sys.stderr.isatty() else nullcontext(_ignore_progress)
