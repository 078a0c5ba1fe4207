"""Files, batches and lines on one volume: rows in SQLite, contents in files beside it.

Whatever ends the process, no row names content that is not whole on the disk: content is written and fsynced first,
then the row is committed. A batch is claimed with a lease, and each claim raises its epoch; a row is written only where
the epoch is still that of the writer, so that an owner that was stopped and goes on writes none. Each epoch appends to
a segment of its own. Output and error file are the results in the order of their lines, whichever owner wrote each.

Methods block; they may be called from any thread. Times are Unix seconds of the caller.
"""

import json
import os
import shutil
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self

import apsw

from paternoster_batch.line_format import BatchApi, unanswered_line

LEASE_SECONDS = 15
BUSY_MILLISECONDS = 10_000
"""Time for which a write waits for that of another process."""
ROWS_AT_ONCE = 500
ORPHAN_SECONDS = 24 * 3600
"""Age from which content without a row is no upload in progress."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS files(
  id TEXT PRIMARY KEY, owner TEXT NOT NULL, purpose TEXT NOT NULL, filename TEXT NOT NULL, bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS files_by_owner ON files(owner, created_at, id);
CREATE TABLE IF NOT EXISTS batches(
  id TEXT PRIMARY KEY, owner TEXT NOT NULL, api TEXT NOT NULL, endpoint TEXT NOT NULL, input_file_id TEXT NOT NULL,
  completion_window TEXT NOT NULL, metadata TEXT, status TEXT NOT NULL, created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL, model TEXT, errors TEXT, output_file_id TEXT, error_file_id TEXT,
  in_progress_at INTEGER, finalizing_at INTEGER, completed_at INTEGER, failed_at INTEGER, expired_at INTEGER,
  cancelling_at INTEGER, cancelled_at INTEGER,
  total INTEGER NOT NULL DEFAULT 0, completed INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
  unanswered INTEGER NOT NULL DEFAULT 0,
  input_tokens INTEGER NOT NULL DEFAULT 0, cached_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0, reasoning_tokens INTEGER NOT NULL DEFAULT 0,
  outcome TEXT, epoch INTEGER NOT NULL DEFAULT 0, lease_until REAL NOT NULL DEFAULT 0) STRICT;
CREATE INDEX IF NOT EXISTS batches_by_owner ON batches(owner, api, created_at, id);
CREATE INDEX IF NOT EXISTS batches_by_input ON batches(input_file_id);
CREATE INDEX IF NOT EXISTS open_batches ON batches(expires_at)
  WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');
CREATE TABLE IF NOT EXISTS lines(
  batch TEXT NOT NULL, number INTEGER NOT NULL, custom_id TEXT NOT NULL, start INTEGER NOT NULL, size INTEGER NOT NULL,
  state TEXT NOT NULL DEFAULT 'waiting', segment INTEGER, result_start INTEGER, result_size INTEGER, position INTEGER,
  PRIMARY KEY(batch, number)) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS waiting_lines ON lines(batch, number) WHERE state = 'waiting';
CREATE UNIQUE INDEX IF NOT EXISTS finished_lines ON lines(batch, position) WHERE position IS NOT NULL;
"""


class BatchStatus(StrEnum):
    """States of OpenAI's Batch API."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


OPEN = frozenset({BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING, BatchStatus.CANCELLING})
_OPEN = ", ".join(f"'{status}'" for status in sorted(OPEN))
Outcome = Literal["completed", "expired"]


class Conflict(Exception):
    """The state of a file or batch does not allow a change; the text states why."""


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file that a client uploaded, or that a batch ended with."""

    id: str
    owner: str
    purpose: str
    filename: str
    bytes: int
    created_at: int


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch as it is now; the names are OpenAI's, those of batches of Anthropic's API as well."""

    id: str
    owner: str
    api: str
    endpoint: str
    input_file_id: str
    completion_window: str
    metadata: str | None
    status: str
    created_at: int
    expires_at: int
    model: str | None
    errors: str | None
    output_file_id: str | None
    error_file_id: str | None
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    total: int
    completed: int
    failed: int
    unanswered: int
    """Lines of ``failed`` that had no answer at the batch's end."""
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    outcome: str | None
    """State in which it ends; None while lines may still be answered."""
    epoch: int


@dataclass(frozen=True, slots=True)
class BatchClaim:
    """The right to write what comes of a batch, for as long as no other claim has raised its epoch."""

    batch: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LineSpan:
    """A line and its place in its batch's input file, in bytes; numbers begin with 1 and count blank lines as well.

    A line of a batch of Anthropic's API is one of the ``requests`` of the body with which it was created.
    """

    number: int
    custom_id: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class LineResult:
    """Result of a line; ``content`` is its line in the output or error file."""

    number: int
    content: bytes
    is_success: bool
    tokens: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Input, cached, output, reasoning."""


_FILE_COLUMNS = ", ".join(field.name for field in fields(FileRow))
_BATCH_COLUMNS = ", ".join(field.name for field in fields(BatchRow))

RESULT_FILES: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    BatchApi.OPENAI: (("output", ("completed",)), ("error", ("failed", "unanswered"))),
    BatchApi.ANTHROPIC: (),
}
"""Files that a batch ends with, and the states of the lines in each."""
_RESULT_COLUMNS = (
    "number, custom_id, state, segment, result_start, result_size, outcome FROM lines JOIN batches ON id = batch"
)
"""Columns of a result, with the outcome as it is now: a batch may be closed while its results are read."""


class Upload:
    """Content that is no file yet; discarded unless it is published."""

    def __init__(self, store: "Store", row: FileRow) -> None:
        self._store = store
        self._row = row
        self._part = store.path_of(f"{row.id}.part")
        self._opened: BinaryIO = self._part.open("wb")
        self.size = 0

    def write(self, piece: bytes) -> None:
        self._opened.write(piece)
        self.size += len(piece)

    def publish_file(self, filename: str, purpose: str) -> FileRow:
        """The file, durable."""
        row = FileRow(self.publish_content(), self._row.owner, purpose, filename, self.size, self._row.created_at)
        with self._store.transaction() as rows:
            _insert(rows, "files", row)
        return row

    def publish_content(self) -> str:
        """Id of the content, which is durable and no file that its owner could list."""
        self._store.write_point("sync an upload")
        _sync(self._opened)
        self._opened.close()
        self._store.publish(self._part, self._store.path_of(self._row.id))
        return self._row.id

    def read_pieces(self, size: int) -> Iterator[bytes]:
        """The content that was written, in pieces of ``size`` bytes."""
        self._opened.flush()
        with self._part.open("rb") as opened:
            yield from iter(lambda: opened.read(size), b"")

    def discard(self) -> None:
        """More than once, and once it is published, has no effect."""
        self._opened.close()
        self._part.unlink(missing_ok=True)


class Store:
    """All files and batches below one folder."""

    def __init__(self, folder: Path, write_point: Callable[[str], object] = lambda _: None) -> None:
        """``write_point`` is called before each step that makes something durable."""
        self.write_point = write_point
        self._folder = folder
        for name in ("files", "results"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._rows = apsw.Connection(str(folder / "batches.sqlite3"))
        self._rows.set_busy_timeout(BUSY_MILLISECONDS)
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            list(self._rows.execute(f"PRAGMA {pragma}"))
        with self.transaction() as rows:
            rows.execute(SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._rows.close()

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """Rows that are written together, or not at all."""
        with self._lock:
            self._rows.execute("BEGIN IMMEDIATE")
            try:
                yield self._rows
                self.write_point("commit rows")
                self._rows.execute("COMMIT")
            except BaseException:
                if self._rows.in_transaction:
                    self._rows.execute("ROLLBACK")
                raise

    def path_of(self, file: str) -> Path:
        """Path of the content of ``file``; ids are made here, and none comes from a client unlooked-up."""
        return self._folder / "files" / file

    def publish(self, part: Path, path: Path) -> None:
        """Give fsynced content its name."""
        self.write_point("rename content")
        part.replace(path)
        _sync_folder(path.parent)

    def remove_orphans(self, now: float) -> None:
        """Remove old content that no row names: what a crash left of uploads and deletions."""
        named = {file for (file,) in self._select(
            "SELECT id FROM files UNION SELECT input_file_id FROM batches WHERE api = ?", BatchApi.ANTHROPIC
        )}  # fmt: skip
        for path in (self._folder / "files").iterdir():
            if path.name not in named and now - path.stat().st_mtime > ORPHAN_SECONDS:
                path.unlink(missing_ok=True)
        answered = {batch for (batch,) in self._select("SELECT DISTINCT batch FROM lines")}
        for path in (self._folder / "results").iterdir():
            if path.name not in answered and now - path.stat().st_mtime > ORPHAN_SECONDS:
                shutil.rmtree(path, ignore_errors=True)

    # Files

    def begin_upload(self, owner: str, now: int) -> Upload:
        return Upload(self, FileRow(f"file-{uuid.uuid4().hex}", owner, "", "", 0, now))

    def find_file(self, owner: str, file: str) -> FileRow | None:
        """None where there is none, also where it is another owner's."""
        rows = self._select(f"SELECT {_FILE_COLUMNS} FROM files WHERE id = ? AND owner = ?", file, owner)
        return FileRow(*rows[0]) if rows else None

    def list_files(
        self, owner: str, *, purpose: str | None = None, after: str | None = None, limit: int, newest_first: bool = True
    ) -> list[FileRow]:
        """Files behind the file ``after``; raises ``KeyError`` where the owner has no such file."""
        where, values = ("owner = ?", [owner]) if purpose is None else ("owner = ? AND purpose = ?", [owner, purpose])
        rows = self._select_page("files", _FILE_COLUMNS, where, values, owner, after, limit, newest_first)
        return [FileRow(*row) for row in rows]

    def delete_file(self, owner: str, file: str) -> bool:
        """False where there is none; raises :class:`Conflict` where an open batch reads it.

        With an output or error file the results of its batch go, too.
        """
        with self.transaction() as rows:
            users = list(rows.execute(
                f"SELECT id FROM batches WHERE input_file_id = ? AND status IN ({_OPEN}) LIMIT 1", (file,)
            ))  # fmt: skip
            if users and self.find_file(owner, file) is not None:
                raise Conflict(f"the file is the input of {users[0][0]}, which has not ended")
            if not _changes(rows, "DELETE FROM files WHERE id = ? AND owner = ?", file, owner):
                return False
            ended = [batch for (batch,) in rows.execute(
                "SELECT id FROM batches WHERE owner = ? AND ? IN (output_file_id, error_file_id)", (owner, file)
            )]  # fmt: skip
            for batch in ended:
                rows.execute("DELETE FROM lines WHERE batch = ?", (batch,))
        self.write_point("remove content")
        self.path_of(file).unlink(missing_ok=True)
        for batch in ended:
            shutil.rmtree(self._folder / "results" / batch, ignore_errors=True)
        return True

    # Batches

    def create_batch(
        self, owner: str, *, endpoint: str, file: str, window: str, expires_at: int, metadata: str | None, now: int
    ) -> BatchRow | None:
        """None where the owner has no such file."""
        batch = f"batch_{uuid.uuid4().hex}"
        with self.transaction() as rows:
            if self.find_file(owner, file) is None:
                return None
            rows.execute(
                "INSERT INTO batches(id, owner, api, endpoint, input_file_id, completion_window, metadata, status, "
                "created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, 'validating', ?, ?)",
                (batch, owner, BatchApi.OPENAI, endpoint, file, window, metadata, now, expires_at),
            )
        return self.find_batch(owner, batch)

    def create_message_batch(
        self, owner: str, upload: Upload, lines: Iterable[LineSpan], *, endpoint: str, window: str, expires_at: int,
        now: int,
    ) -> BatchRow:  # fmt: skip
        """A batch of Anthropic's API, in progress, from the valid ``lines`` of the body that ``upload`` has."""
        batch, content = f"msgbatch_{uuid.uuid4().hex}", upload.publish_content()
        with self.transaction() as rows:
            rows.execute(
                "INSERT INTO batches(id, owner, api, endpoint, input_file_id, completion_window, status, created_at, "
                "expires_at, in_progress_at) VALUES (?, ?, ?, ?, ?, ?, 'in_progress', ?, ?, ?)",
                (batch, owner, BatchApi.ANTHROPIC, endpoint, content, window, now, expires_at, now),
            )
            _insert_lines(rows, batch, lines)
            total = "(SELECT count(*) FROM lines WHERE batch = id)"
            rows.execute(f"UPDATE batches SET total = {total} WHERE id = ?", (batch,))
        row = self.find_batch(owner, batch)
        assert row is not None
        return row

    def find_batch(self, owner: str, batch: str, api: BatchApi | None = None) -> BatchRow | None:
        """None where there is none of ``api``, also where it is another owner's."""
        row = _first_batch(
            self._select(f"SELECT {_BATCH_COLUMNS} FROM batches WHERE id = ? AND owner = ?", batch, owner)
        )
        return row if row is None or api in (None, row.api) else None

    def list_batches(
        self, owner: str, api: BatchApi = BatchApi.OPENAI, *, after: str | None = None, limit: int,
        newest_first: bool = True,
    ) -> list[BatchRow]:  # fmt: skip
        """Batches behind the batch ``after``; raises ``KeyError`` where the owner has no such batch."""
        where, values = "owner = ? AND api = ?", [owner, api]
        rows = self._select_page("batches", _BATCH_COLUMNS, where, values, owner, after, limit, newest_first)
        return [BatchRow(*row) for row in rows]

    def change_window(self, owner: str, batch: str, window: str, seconds: int) -> BatchRow | None:
        """The batch, which ends ``seconds`` after its creation; raises :class:`Conflict` where it ends already."""
        with self.transaction() as rows:
            changed = _changes(
                rows,
                "UPDATE batches SET completion_window = ?, expires_at = created_at + ? WHERE id = ? AND owner = ? "
                "AND outcome IS NULL AND status IN ('validating', 'in_progress')", window, seconds, batch, owner,
            )  # fmt: skip
            row = self.find_batch(owner, batch)
        if row is not None and not changed:
            raise Conflict(f"the batch is {row.status}: one that is validating or in_progress can have another window")
        return row

    def delete_batch(self, owner: str, batch: str) -> bool:
        """Delete a batch of Anthropic's API with its input and results; False where there is none.

        Raises :class:`Conflict` where it has not ended.
        """
        with self.transaction() as rows:
            row = self.find_batch(owner, batch, BatchApi.ANTHROPIC)
            if row is None:
                return False
            if row.status in OPEN:
                raise Conflict(f"the batch is {row.status}: one that has ended can be deleted")
            rows.execute("DELETE FROM lines WHERE batch = ?", (batch,))
            rows.execute("DELETE FROM batches WHERE id = ?", (batch,))
        self.write_point("remove content")
        self.path_of(row.input_file_id).unlink(missing_ok=True)
        shutil.rmtree(self._folder / "results" / batch, ignore_errors=True)
        return True

    def cancel_batch(self, owner: str, batch: str, now: int) -> BatchRow | None:
        """The batch, which is cancelled once its owner has seen it; raises :class:`Conflict` where it has ended."""
        with self.transaction() as rows:
            rows.execute(
                "UPDATE batches SET status = 'cancelling', cancelling_at = ? WHERE id = ? AND owner = ? "
                "AND outcome IS NULL AND status IN ('validating', 'in_progress')",
                (now, batch, owner),
            )
            row = self.find_batch(owner, batch)
        if row is not None and row.status not in (BatchStatus.CANCELLING, BatchStatus.CANCELLED):
            raise Conflict(f"the batch is {row.status}: one that is validating or in_progress can be cancelled")
        return row

    def read_results(self, batch: BatchRow, after: int) -> Iterator[bytes]:
        """The results behind the first ``after``, in the order in which they came, up to those that are there now."""
        for row in self._select_results(batch, "position", after):
            yield self._read_result(batch, row)

    def read_in_order(
        self, batch: BatchRow, states: Sequence[str] = ("completed", "failed", "unanswered")
    ) -> Iterator[bytes]:
        """The results of lines in ``states``, in the order of the lines."""
        for row in self._select_results(batch, "number", 0):
            if row[2] in states:
                yield self._read_result(batch, row)

    def _select_results(self, batch: BatchRow, key: str, after: int) -> Iterator[Sequence[Any]]:
        """The columns of results in order of the column ``key``, from the first one above ``after``."""
        while True:
            rows = self._select(
                f"SELECT {key}, {_RESULT_COLUMNS} WHERE batch = ? AND {key} > ? ORDER BY {key} LIMIT ?",
                batch.id, after, ROWS_AT_ONCE,
            )  # fmt: skip
            for row in rows:
                after = row[0]
                yield row[1:]
            if len(rows) < ROWS_AT_ONCE:
                return

    # What the owner of a claim does

    def claim_batch(
        self, now: float, besides: Iterable[str] = (), most_of_owner: int = sys.maxsize
    ) -> tuple[BatchClaim, BatchRow] | None:
        """Claim the open batch with the earliest deadline of the client with the fewest running, but for ``besides``.

        None where there is no such batch; clients of whom ``most_of_owner`` run already are passed over.
        """
        with self.transaction() as rows:
            found = rows.execute(
                f"WITH claimed AS (SELECT owner, count(*) AS running FROM batches WHERE status IN ({_OPEN}) "
                f"AND lease_until > ? GROUP BY owner) SELECT {_BATCH_COLUMNS} FROM batches LEFT JOIN claimed "
                f"USING (owner) WHERE status IN ({_OPEN}) AND lease_until <= ? "
                "AND id NOT IN (SELECT value FROM json_each(?)) AND ifnull(running, 0) < ? "
                "ORDER BY ifnull(running, 0), expires_at, id LIMIT 1",
                (now, now, json.dumps(list(besides)), most_of_owner),
            ).fetchone()
            if found is None:
                return None
            row = BatchRow(*found)
            claim = BatchClaim(row.id, row.epoch + 1)
            rows.execute(
                "UPDATE batches SET epoch = ?, lease_until = ? WHERE id = ?", (claim.epoch, now + LEASE_SECONDS, row.id)
            )
        return claim, row

    def renew_claim(self, claim: BatchClaim, now: float) -> BatchRow | None:
        """The batch, leased anew; None where another has claimed it."""
        with self.transaction() as rows:
            _update(rows, claim, "lease_until = ?", now + LEASE_SECONDS)
            return self._find_claimed(claim)

    def release_claim(self, claim: BatchClaim) -> None:
        """Let the next one claim the batch at once."""
        with self.transaction() as rows:
            _update(rows, claim, "lease_until = 0")

    def start_lines(self, claim: BatchClaim, model: str, lines: Sequence[LineSpan], now: int) -> bool:
        """Begin a batch whose input is valid; False where it is not validating any more, or another's."""
        with self.transaction() as rows:
            begun = _update(
                rows, claim, "status = 'in_progress', in_progress_at = ?, model = ?, total = ?", now, model, len(lines),
                where="status = 'validating'",
            )  # fmt: skip
            if begun:
                _insert_lines(rows, claim.batch, lines)
        return begun

    def fail_batch(self, claim: BatchClaim, errors: Sequence[dict[str, Any]], now: int) -> bool:
        """End a batch none of whose lines may run; False as :meth:`start_lines`."""
        with self.transaction() as rows:
            return _update(
                rows, claim, "status = 'failed', failed_at = ?, errors = ?", now, json.dumps(errors),
                where="status = 'validating'",
            )  # fmt: skip

    def list_waiting(self, claim: BatchClaim, after: int, limit: int) -> list[LineSpan]:
        """Lines without a result behind line ``after``, in order."""
        rows = self._select(
            "SELECT number, custom_id, start, size FROM lines WHERE batch = ? AND number > ? AND state = 'waiting' "
            "ORDER BY number LIMIT ?", claim.batch, after, limit,
        )  # fmt: skip
        return [LineSpan(*row) for row in rows]

    def write_results(self, claim: BatchClaim, results: Sequence[LineResult]) -> bool:
        """Make results durable, the first of each line; False where the claim is lost, or the batch ends."""
        with self._lock:
            starts = self._append_results(claim, results)
            with self.transaction() as rows:
                row = self._find_claimed(claim)
                if row is None or row.outcome is not None:
                    return False
                position, completed, tokens = row.completed + row.failed, 0, [0, 0, 0, 0]
                for result, start in zip(results, starts, strict=True):
                    if _changes(
                        rows,
                        "UPDATE lines SET state = ?, segment = ?, result_start = ?, result_size = ?, position = ? "
                        "WHERE batch = ? AND number = ? AND state = 'waiting'",
                        "completed" if result.is_success else "failed", claim.epoch, start, len(result.content),
                        position + 1, claim.batch, result.number,
                    ):  # fmt: skip
                        position += 1
                        completed += result.is_success
                        tokens = [sum(pair) for pair in zip(tokens, result.tokens, strict=True)]
                finished = position - row.completed - row.failed
                _update(
                    rows, claim, "completed = completed + ?, failed = failed + ?, input_tokens = input_tokens + ?, "
                    "cached_tokens = cached_tokens + ?, output_tokens = output_tokens + ?, "
                    "reasoning_tokens = reasoning_tokens + ?", completed, finished - completed, *tokens,
                )  # fmt: skip
        return True

    def close_batch(self, claim: BatchClaim, outcome: Outcome, now: int) -> bool:
        """Answer no more lines: those that wait have failed. False where the claim is lost, or it was closed before.

        The outcome of a batch that is cancelling is ``cancelled``.
        """
        with self.transaction() as rows:
            row = self._find_claimed(claim)
            if row is None or row.outcome is not None:
                return False
            if row.status == BatchStatus.CANCELLING:
                _update(rows, claim, "outcome = 'cancelled'")
            else:
                _update(rows, claim, "outcome = ?, status = 'finalizing', finalizing_at = ?", outcome, now)
            unanswered = _changes(
                rows,
                "UPDATE lines SET state = 'unanswered', position = ? + waiting.place FROM (SELECT number, "
                "row_number() OVER (ORDER BY number) AS place FROM lines WHERE batch = ? AND state = 'waiting') "
                "AS waiting WHERE lines.batch = ? AND lines.number = waiting.number",
                row.completed + row.failed, claim.batch, claim.batch,
            )  # fmt: skip
            _update(rows, claim, "failed = failed + ?, unanswered = ?", unanswered, unanswered)
        return True

    def finalize_batch(self, claim: BatchClaim, now: int) -> bool:
        """Write the files of a closed batch, and end it; False where the claim is lost."""
        row = self._find_claimed(claim)
        if row is None or row.outcome is None:
            return False
        files = []
        for kind, wanted in RESULT_FILES[row.api]:
            file = f"file-{claim.batch.removeprefix('batch_')}-{kind}"
            part = self.path_of(f"{file}.{claim.epoch}.part")
            size = self._write_file(part, self.read_in_order(row, wanted))
            if not size:
                part.unlink()
                continue
            self.publish(part, self.path_of(file))
            files.append(FileRow(file, row.owner, "batch_output", f"{claim.batch}_{kind}.jsonl", size, now))
        with self.transaction() as rows:
            ended = _update(rows, claim, f"status = outcome, {row.outcome}_at = ?", now, where=f"status IN ({_OPEN})")
            for file_row in files if ended else ():
                _insert(rows, "files", file_row)
                kind = "output" if file_row.id.endswith("-output") else "error"
                _update(rows, claim, f"{kind}_file_id = ?", file_row.id)
        return ended

    # Internals

    def _find_claimed(self, claim: BatchClaim) -> BatchRow | None:
        rows = self._select(
            f"SELECT {_BATCH_COLUMNS} FROM batches WHERE id = ? AND epoch = ?", claim.batch, claim.epoch
        )
        return _first_batch(rows)

    def _append_results(self, claim: BatchClaim, results: Sequence[LineResult]) -> list[int]:
        """Append results; returns where each begins in the segment of the claim, once they are durable there."""
        folder = self._folder / "results" / claim.batch
        folder.mkdir(exist_ok=True)
        # Opened for each write: bytes of a write that failed are in no buffer, and the end is the file's.
        with (folder / str(claim.epoch)).open("ab") as segment:
            starts, end = [], os.fstat(segment.fileno()).st_size
            if not end:
                _sync_folder(folder)
                _sync_folder(folder.parent)
            for result in results:
                starts.append(end)
                end += len(result.content)
            segment.write(b"".join(result.content for result in results))
            self.write_point("sync results")
            _sync(segment)
        return starts

    def _read_result(self, batch: BatchRow, row: Sequence[Any]) -> bytes:
        number, custom_id, state, segment, start, size, outcome = row
        if state != "unanswered":
            return _read_span(self._folder / "results" / batch.id / str(segment), start, size)
        return unanswered_line(batch.api, batch.id, number, custom_id, outcome)

    def _write_file(self, part: Path, contents: Iterable[bytes]) -> int:
        with part.open("wb") as opened:
            size = sum(map(opened.write, contents))
            self.write_point("sync a file of results")
            _sync(opened)
        return size

    def _select(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return list(self._rows.execute(query, values))

    def _select_page(
        self, table: str, columns: str, where: str, values: list[Any], owner: str, after: str | None, limit: int,
        newest_first: bool,
    ) -> list[tuple[Any, ...]]:  # fmt: skip
        order, compare = ("DESC", "<") if newest_first else ("ASC", ">")
        if after is not None:
            found = self._select(f"SELECT created_at FROM {table} WHERE id = ? AND owner = ?", after, owner)
            if not found:
                raise KeyError(after)
            where, values = f"{where} AND (created_at, id) {compare} (?, ?)", [*values, found[0][0], after]
        query = f"SELECT {columns} FROM {table} WHERE {where} ORDER BY created_at {order}, id {order} LIMIT ?"
        return self._select(query, *values, limit)


def _first_batch(rows: Sequence[Sequence[Any]]) -> BatchRow | None:
    return BatchRow(*rows[0]) if rows else None


def _insert_lines(rows: apsw.Connection, batch: str, lines: Iterable[LineSpan]) -> None:
    rows.executemany(
        "INSERT INTO lines(batch, number, custom_id, start, size) VALUES (?, ?, ?, ?, ?)",
        ((batch, line.number, line.custom_id, line.start, line.size) for line in lines),
    )


def _update(rows: apsw.Connection, claim: BatchClaim, assignments: str, *values: Any, where: str = "TRUE") -> bool:
    """Change the claim's batch; False where another claim has raised the epoch."""
    query = f"UPDATE batches SET {assignments} WHERE id = ? AND epoch = ? AND {where}"
    return _changes(rows, query, *values, claim.batch, claim.epoch) > 0


def _changes(rows: apsw.Connection, query: str, *values: Any) -> int:
    rows.execute(query, values)
    return rows.changes()


def _insert(rows: apsw.Connection, table: str, row: FileRow) -> None:
    values = [getattr(row, field.name) for field in fields(row)]
    rows.execute(f"INSERT INTO {table}({_FILE_COLUMNS}) VALUES ({', '.join('?' * len(values))})", values)


def _read_span(path: Path, start: int, size: int) -> bytes:
    with path.open("rb") as opened:
        return os.pread(opened.fileno(), size, start)


def _sync(opened: BinaryIO) -> None:
    opened.flush()
    os.fsync(opened.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
