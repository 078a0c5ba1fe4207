"""Actions of ``paternoster batch submit``, ``list``, ``watch``, ``results`` and ``cancel`` by a :class:`BatchClient`.

Each returns its exit code: 0, or 1 where a file's lines may not run or a batch did not answer all of them.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from paternoster_batch.batch_client import BatchClient, ReportedBatch, ServiceError, ServiceUnavailable
from paternoster_batch.input_file import READ_BYTES, InputFile
from paternoster_batch.store import OPEN, BatchStatus
from paternoster_batch.upload_form import MAX_FILE_BYTES
from paternoster_contract.cli.console import QuotingConsole
from paternoster_contract.cli.terminal import print_error, print_line, print_text

POLL_SECONDS = 1.0
VALIDATION_SECONDS = 30.0
"""Time for which ``submit`` waits for the service's validation, which reaches the gateway."""
LOST_SECONDS = 600.0
"""Time without an answer after which ``watch`` ends."""
SPEED_SECONDS = 600.0
"""Time over which the speed for the estimate of the end is measured."""
MAX_RESULT_BYTES = 16 * 2**20
"""Limit for a line of results on standard output; an answer in it is bounded by the service."""
CREATED_FORMAT = "%Y-%m-%d %H:%M"


async def submit_file(client: BatchClient, path: Path, endpoint: str, window: str) -> int:
    """Validate a file, upload it and create its batch, whose id is printed; waits for the service's validation."""
    with path.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        if size > MAX_FILE_BYTES:
            print_error(f"{path}: has {size} bytes: a batch has at most {MAX_FILE_BYTES}")
            return 1
        file = InputFile.read(iter(lambda: opened.read(READ_BYTES), b""), endpoint)
        for error in file.errors:
            _print_fault(str(path), error["line"], error["message"], error["code"])
        if file.errors:
            return 1
        opened.seek(0)
        uploaded = await client.upload_file(path.name, opened)
    batch = await client.create_batch(uploaded, endpoint, window)
    print_line(batch.id)
    deadline = time.monotonic() + VALIDATION_SECONDS
    while batch.status == BatchStatus.VALIDATING and time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
        batch = await client.find_batch(batch.id)
    _print_faults(str(path), batch)
    return 1 if batch.status == BatchStatus.FAILED else 0


async def list_batches(client: BatchClient, limit: int) -> int:
    """Print the newest batches as a table."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for name in ("ID", "STATUS", "ANSWERED", "FAILED", "LINES", "TOKENS", "MODEL", "ENDPOINT", "WINDOW", "CREATED"):
        table.add_column(name, no_wrap=True)
    for batch in await client.list_batches(limit):
        counts = batch.request_counts
        created = datetime.fromtimestamp(batch.created_at, UTC).strftime(CREATED_FORMAT)
        numbers = map(str, (counts.completed, counts.failed, counts.total, batch.usage.total_tokens))
        table.add_row(
            batch.id, batch.status, *numbers, batch.model or "", batch.endpoint, batch.completion_window, created
        )
    QuotingConsole(width=1000).print(table)
    return 0


async def watch_batch(client: BatchClient, name: str) -> int:
    """Show how far a batch is until it has ended, and then its end."""
    batch = await client.find_batch(name)
    with _show_progress(batch) as update:
        answered = time.monotonic()
        while batch.status in OPEN:
            await asyncio.sleep(POLL_SECONDS)
            try:
                batch = await client.find_batch(name)
            except ServiceUnavailable:
                if time.monotonic() - answered > LOST_SECONDS:
                    raise
                continue
            answered = time.monotonic()
            update(batch)
    counts = batch.request_counts
    print_line(
        f"{batch.id} {batch.status}: {counts.completed} of {counts.total} lines answered, {counts.failed} failed, "
        f"{batch.usage.total_tokens} tokens"
    )
    _print_faults(batch.id, batch)
    return 0 if batch.status == BatchStatus.COMPLETED and not counts.failed else 1


async def read_results(client: BatchClient, name: str, after: int | None, output: Path | None) -> int:
    """Write the files of an ended batch, or with ``after`` the results so far behind that many."""
    batch = await client.find_batch(name)
    if after is None and batch.status in OPEN:
        print_error(f"{batch.id} is {batch.status}: --after 0 writes the results so far")
        return 1
    if after is None:
        contents = [client.read_file(file) for file in (batch.output_file_id, batch.error_file_id) if file is not None]
    else:
        contents = [client.read_results(name, after)]
    count = await (_print_lines(contents) if output is None else _write_lines(contents, output))
    if after is not None:
        print_error(f"{count} results; the next are behind --after {after + count}")
    _print_faults(batch.id, batch)
    return 1 if batch.status == BatchStatus.FAILED else 0


async def cancel_batch(client: BatchClient, name: str) -> int:
    """Cancel a batch and print its state."""
    batch = await client.cancel_batch(name)
    print_line(f"{batch.id} {batch.status}")
    return 0


@contextmanager
def _show_progress(batch: ReportedBatch) -> Iterator[Callable[[ReportedBatch], None]]:
    """A bar on the error stream, with tokens since it began and an estimate of the end."""
    columns = (
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        "{task.fields[failed]} failed",
        "{task.fields[tokens]} tokens",
        "{task.fields[speed]:.1f} tokens/s",
        TimeElapsedColumn(),
        "ends in",
        TimeRemainingColumn(),
    )
    began, first_tokens = time.monotonic(), batch.usage.total_tokens
    with Progress(*columns, console=QuotingConsole(stderr=True), speed_estimate_period=SPEED_SECONDS) as bar:
        task = bar.add_task(batch.status, failed=0, tokens=0, speed=0.0)

        def update(batch: ReportedBatch) -> None:
            counts, tokens = batch.request_counts, batch.usage.total_tokens
            speed = (tokens - first_tokens) / max(POLL_SECONDS, time.monotonic() - began)
            bar.update(
                task, description=batch.status, total=counts.total or None, completed=counts.completed + counts.failed,
                failed=counts.failed, tokens=tokens, speed=speed,
            )  # fmt: skip

        update(batch)
        yield update


async def _print_lines(contents: list[AsyncIterator[bytes]]) -> int:
    """Print results and return how many there are; what a terminal could not show is quoted."""
    count, rest = 0, b""
    for pieces in contents:
        async for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > MAX_RESULT_BYTES:
                raise ServiceError(f"a line of the results has more than {MAX_RESULT_BYTES} bytes")
            for line in lines:
                print_text(line.decode(errors="replace"))
            count += len(lines)
    return count


async def _write_lines(contents: list[AsyncIterator[bytes]], output: Path) -> int:
    """Write results to a file, which has its name once it is whole; returns how many there are."""
    part, count = output.with_name(f"{output.name}.part"), 0
    try:
        with part.open("wb") as opened:
            for pieces in contents:
                async for piece in pieces:
                    opened.write(piece)
                    count += piece.count(b"\n")
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
    return count


def _print_faults(place: str, batch: ReportedBatch) -> None:
    for error in batch.errors.data if batch.errors else ():
        _print_fault(place, error.line, error.message, error.code)


def _print_fault(place: str, line: int | None, message: str, code: str | None) -> None:
    """Print an error in the form of compilers: ``FILE:LINE: message [code]``."""
    print_error(f"{place if line is None else f'{place}:{line}'}: {message} [{code}]")
