"""Claimed batches, run to their ends: validated, their lines sent through the gateway, their files written.

A batch that is not brought to its end, because the disk is full or the process ends, is claimed anew once its lease has
ended, and goes on with the lines that have no result.
"""

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from paternoster_batch.gateway_client import GatewayClient, ModelRefusal, TryLater
from paternoster_batch.input_file import READ_BYTES, InputFile, parse_line
from paternoster_batch.line_format import BatchApi
from paternoster_batch.message_requests import parse_request
from paternoster_batch.store import BatchClaim, BatchRow, BatchStatus, LineResult, LineSpan, Outcome, Store
from paternoster_contract.supervise import supervise_task

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 64
"""Requests to the gateway at once, of all batches."""
MOST_CLAIMED = 64
"""Batches that run at once."""
MOST_OF_OWNER = MOST_CLAIMED // 8
"""Batches of one owner that run at once, so that one whose batches only wait does not stop the others'."""
LOOK_SECONDS = 1.0
"""Between two looks for batches that another process has left."""
RENEW_SECONDS = 5.0
LINES_AT_ONCE = 256
FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 30.0
MIN_FREE_BYTES = 64 * 2**20
"""Free space of the volume below which no line is sent and no upload read, since it could not be kept."""


class ClaimLost(Exception):
    """Another process has claimed the batch."""


class BatchRunner:
    """Runs batches; each shares the places for requests in flight with the others."""

    def __init__(
        self, store: Store, folder: Path, gateway: GatewayClient, max_in_flight: int = MAX_IN_FLIGHT,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """``max_in_flight``: requests to the gateway; ``folder``: on the volume of the store."""
        self._store = store
        self._folder = folder
        self._gateway = gateway
        self._max_in_flight = max_in_flight
        self._clock = clock
        self._slots = asyncio.Semaphore(max_in_flight)
        self._validating = asyncio.Lock()
        self._new_work = asyncio.Event()
        self._has_space = True
        self._running: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}

    def notice(self, batch: str | None = None) -> None:
        """A batch was created, or ``batch`` was changed: it is to be cancelled, or has another deadline."""
        self._new_work.set()
        if batch in self._running:
            self._running[batch][1].set()

    async def check_model(self, owner: str, model: str) -> ModelRefusal | TryLater | None:
        """Check whether ``owner`` may ask ``model``; None where it may."""
        return await self._gateway.check_model(owner, model)

    async def run(self) -> None:
        """Claim and run batches until the task is cancelled."""
        await asyncio.to_thread(self._store.remove_orphans, self._clock())
        try:
            while True:
                self._new_work.clear()
                while len(self._running) < MOST_CLAIMED and self.has_space():
                    claimed = await asyncio.to_thread(
                        self._store.claim_batch, self._clock(), list(self._running), MOST_OF_OWNER
                    )
                    if claimed is None:
                        break
                    self._start(*claimed)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._new_work.wait(), LOOK_SECONDS)
        finally:
            for task, _ in (running := list(self._running.values())):
                task.cancel()
            await asyncio.gather(*(task for task, _ in running), return_exceptions=True)

    def has_space(self) -> bool:
        """Whether the volume can keep more; a change is logged once."""
        free = shutil.disk_usage(self._folder).free
        had, self._has_space = self._has_space, free >= MIN_FREE_BYTES
        if had and not self._has_space:
            log.error("the volume is nearly full: %d bytes are free, batches need %d", free, MIN_FREE_BYTES)
        elif self._has_space and not had:
            log.warning("the volume has space again: %d bytes are free", free)
        return self._has_space

    def _start(self, claim: BatchClaim, row: BatchRow) -> None:
        changed = asyncio.Event()
        task = supervise_task(lambda: self._run_claimed(claim, row, changed), "run-batch", again=False)
        self._running[claim.batch] = task, changed

        def forget(ended: asyncio.Task[None]) -> None:
            del self._running[claim.batch]
            self._new_work.set()
            if not ended.cancelled():
                ended.exception()  # logged where it was raised

        task.add_done_callback(forget)

    async def _run_claimed(self, claim: BatchClaim, row: BatchRow, changed: asyncio.Event) -> None:
        renewing = supervise_task(lambda: self._renew(claim, row, changed), "renew-claim")
        try:
            await self._run_batch(claim, row, changed)
        except* ClaimLost:
            log.warning("%s was claimed by another process", claim.batch)
        finally:
            renewing.cancel()
            # After an error the lease lasts on: the batch is tried again once it ends.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                self._store.release_claim(claim)

    async def _renew(self, claim: BatchClaim, row: BatchRow, changed: asyncio.Event) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            current = await asyncio.to_thread(self._store.renew_claim, claim, self._clock())
            if current is None or (current.status, current.expires_at) != (row.status, row.expires_at):
                changed.set()
            if current is None:
                return
            row = current

    async def _run_batch(self, claim: BatchClaim, row: BatchRow, changed: asyncio.Event) -> None:
        is_answered = False
        if row.outcome is None and row.status != BatchStatus.CANCELLING and self._clock() < row.expires_at:
            is_answered = await self._answer_until(claim, row, changed)
        current = await self._find_claimed(claim)
        if current.status == BatchStatus.FAILED:
            return
        if current.outcome is None:
            outcome: Outcome = "completed" if is_answered else "expired"
            if not is_answered and current.status != BatchStatus.CANCELLING and self._clock() < current.expires_at:
                return  # it was stopped for a reason that has passed
            await asyncio.to_thread(self._store.close_batch, claim, outcome, int(self._clock()))
        await asyncio.to_thread(self._store.finalize_batch, claim, int(self._clock()))

    async def _find_claimed(self, claim: BatchClaim) -> BatchRow:
        row = await asyncio.to_thread(self._store.renew_claim, claim, self._clock())
        if row is None:
            raise ClaimLost
        return row

    async def _answer_until(self, claim: BatchClaim, row: BatchRow, changed: asyncio.Event) -> bool:
        """Answer the lines; False where the batch is to stop, or its time is over, before all have results."""
        answering = asyncio.create_task(self._answer(claim, row))
        answering.add_done_callback(lambda _: changed.set())
        try:
            while not answering.done():
                changed.clear()
                current = await self._find_claimed(claim)
                left = current.expires_at - self._clock()
                if left <= 0 or current.status == BatchStatus.CANCELLING:
                    return False
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), left)
            await answering
            return True
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _answer(self, claim: BatchClaim, row: BatchRow) -> None:
        if row.status == BatchStatus.VALIDATING and not await self._validate(claim, row):
            return
        writer = _ResultWriter(self._store, claim)
        window = asyncio.Semaphore(self._max_in_flight)
        number = 0
        async with asyncio.TaskGroup() as sending:
            while lines := await asyncio.to_thread(self._store.list_waiting, claim, number, LINES_AT_ONCE):
                for line in lines:
                    await window.acquire()
                    sending.create_task(self._answer_line(row, line, writer, window))
                number = lines[-1].number

    async def _validate(self, claim: BatchClaim, row: BatchRow) -> bool:
        async with self._validating:  # one file at a time
            file = await asyncio.to_thread(_read_input, self._store.path_of(row.input_file_id), row.endpoint)
        attempt = 0
        while not file.errors:
            refusal = await self.check_model(row.owner, file.model)
            if refusal is None:
                break
            if isinstance(refusal, TryLater):
                await self._back_off(refusal, attempt := attempt + 1)
            else:
                error = {"code": refusal.code, "message": refusal.describe("body.model"), "param": "body.model"}
                file.errors.append(error | {"line": file.lines[0].number})
        now = int(self._clock())
        if file.errors:
            await asyncio.to_thread(self._store.fail_batch, claim, file.errors, now)
            return False
        return await asyncio.to_thread(self._store.start_lines, claim, file.model, file.lines, now)

    async def _answer_line(
        self, row: BatchRow, line: LineSpan, writer: "_ResultWriter", window: asyncio.Semaphore
    ) -> None:
        try:
            attempt = 0
            while True:
                async with self._slots:  # none is held while a line waits for the gateway, nor is its body
                    while not self.has_space():  # noqa: ASYNC110 - nothing signals it
                        await asyncio.sleep(LOOK_SECONDS)
                    body = await asyncio.to_thread(_read_body, self._store.path_of(row.input_file_id), line, row)
                    result = await self._gateway.send_line(row, line, body)
                    if isinstance(result, LineResult):
                        await writer.write(result)
                        return
                await self._back_off(result, attempt := attempt + 1)
        finally:
            window.release()

    async def _back_off(self, later: TryLater, attempt: int) -> None:
        backoff = min(FIRST_BACKOFF_SECONDS * 2.0 ** (attempt - 1), LONGEST_BACKOFF_SECONDS)
        log.info("the gateway is asked again: %s", later.reason)
        await asyncio.sleep(backoff if later.after_seconds is None else later.after_seconds)


class _ResultWriter:
    """Writes the results of one claim; those that come while others are written are made durable together."""

    def __init__(self, store: Store, claim: BatchClaim) -> None:
        self._store = store
        self._claim = claim
        self._writing = asyncio.Lock()
        self._unwritten: list[LineResult] = []

    async def write(self, result: LineResult) -> None:
        """Return once the result is durable; raises :class:`ClaimLost` where it may not be written any more."""
        self._unwritten.append(result)
        async with self._writing:
            results, self._unwritten = self._unwritten, []
            if results and not await asyncio.to_thread(self._store.write_results, self._claim, results):
                raise ClaimLost


def _read_input(path: Path, endpoint: str) -> InputFile:
    with path.open("rb") as opened:
        return InputFile.read(iter(lambda: opened.read(READ_BYTES), b""), endpoint)


def _read_body(path: Path, line: LineSpan, row: BatchRow) -> dict[str, object]:
    with path.open("rb") as opened:
        content = os.pread(opened.fileno(), line.size, line.start)
    if row.api == BatchApi.ANTHROPIC:
        return parse_request(content)[1]
    return parse_line(content, row.endpoint)[1]
