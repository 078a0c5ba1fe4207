"""Rows and contents after a crash at any write: each line has one result, and output files are the same bytes."""

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from paternoster_batch import store as store_module
from paternoster_batch.line_format import BatchApi, answered_line, unanswered_line
from paternoster_batch.store import LEASE_SECONDS, BatchClaim, BatchRow, Conflict, LineResult, LineSpan, Store

OWNER = "tenant"
LINES = 6


class Crash(Exception):
    """The process ends here."""


class Disk:
    """Disk that survives a crash: of each file what was fsynced, and as much more as chance has it."""

    def __init__(self) -> None:
        self.writes_left: int | None = None
        self._durable: dict[int, int] = {}

    def write_point(self, _: str) -> None:
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise Crash
            self.writes_left -= 1

    def fsync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self._durable[status.st_ino] = status.st_size

    def lose_unsynced(self, folder: Path, chance: random.Random) -> None:
        for path in (*folder.glob("files/*"), *folder.glob("results/*/*")):
            size, durable = path.stat().st_size, self._durable.get(path.stat().st_ino, 0)
            os.truncate(path, chance.randint(min(durable, size), size))


def result_of(batch: str, number: int) -> LineResult:
    """Deterministic, as a line that is sent twice is answered alike."""
    status = 400 if number % 3 == 0 else 200
    content = answered_line(BatchApi.OPENAI, batch, number, f"id-{number}", status, "", {"text": "x" * number * 40})
    return LineResult(number, content, status < 400, (number, 0, 2, 1))


def submit(store: Store, lines: int = LINES, now: int = 0, owner: str = OWNER) -> tuple[str, list[LineSpan]]:
    upload = store.begin_upload(owner, now)
    spans, start = [], 0
    for number in range(1, lines + 1):
        piece = f'{{"custom_id":"id-{number}"}}\n'.encode()
        upload.write(piece)
        spans.append(LineSpan(number, f"id-{number}", start, len(piece)))
        start += len(piece)
    file = upload.publish_file("in.jsonl", "batch")
    row = store.create_batch(
        owner, endpoint="/v1/completions", file=file.id, window="24h", expires_at=now + 86400, metadata=None, now=now
    )
    assert row is not None
    return row.id, spans


def start_batch(store: Store) -> tuple[BatchClaim, BatchRow]:
    """A batch in progress, whose first line has a result."""
    batch, spans = submit(store)
    claimed = store.claim_batch(0)
    assert claimed is not None
    store.start_lines(claimed[0], "m", spans, 0)
    assert store.write_results(claimed[0], [result_of(batch, 1)])
    row = store.find_batch(OWNER, batch)
    assert row is not None
    return claimed[0], row


class CrashingStore(RuleBasedStateMachine):
    """A batch from its creation to its end, by owners that crash, and by owners that were thought dead and go on."""

    def __init__(self) -> None:
        super().__init__()
        self._temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self._temporary.name)
        self.disk = Disk()
        self.now = 0
        self.claims: list[BatchClaim] = []
        self.written: dict[int, bytes] = {}
        """Results that the store made durable."""
        self.chance = random.Random(0)
        self.patch = mock.patch.object(store_module.os, "fsync", self.disk.fsync)
        self.patch.start()
        self.store = Store(self.folder, self.disk.write_point)

    @initialize(begin=st.sampled_from([True, True, False]))
    def create(self, begin: bool) -> None:
        self.batch, self.spans = submit(self.store)
        if begin:
            self.claim(None)
            self.start(None)

    def attempt(self, act: Callable[[], Any], crash_at: int | None) -> Any:
        """Do it, and crash before the write with this number; what the store then has is what a new process reads."""
        self.disk.writes_left = crash_at
        try:
            return act()
        except Crash:
            self.disk.writes_left = None
            self.store.close()
            self.disk.lose_unsynced(self.folder, self.chance)
            self.store = Store(self.folder, self.disk.write_point)
            return None
        finally:
            self.disk.writes_left = None

    @property
    def row(self) -> BatchRow:
        row = self.store.find_batch(OWNER, self.batch)
        assert row is not None
        return row

    crashes = st.none() | st.integers(0, 6)

    @rule(crash_at=crashes)
    def claim(self, crash_at: int | None) -> None:
        claimed = self.attempt(lambda: self.store.claim_batch(self.now), crash_at)
        if claimed is not None:
            assert claimed[0].epoch > max((claim.epoch for claim in self.claims), default=0)
            self.claims.append(claimed[0])

    @rule()
    def let_the_lease_end(self) -> None:
        self.now += LEASE_SECONDS

    @precondition(lambda self: self.claims)
    @rule(crash_at=crashes)
    def start(self, crash_at: int | None) -> None:
        self.attempt(lambda: self.store.start_lines(self.claims[-1], "m", self.spans, self.now), crash_at)

    @precondition(lambda self: self.claims)
    @rule(crash_at=crashes, numbers=st.lists(st.integers(1, LINES), min_size=1, max_size=3))
    def answer(self, crash_at: int | None, numbers: list[int]) -> None:
        waiting = {line.number for line in self.store.list_waiting(self.claims[-1], 0, LINES)}
        results = [result_of(self.batch, number) for number in numbers]
        if self.attempt(lambda: self.store.write_results(self.claims[-1], results), crash_at):
            self.written |= {each.number: each.content for each in results if each.number in waiting}

    @precondition(lambda self: len(self.claims) > 1)
    @rule(number=st.integers(1, LINES), old=st.data())
    def go_on_as_an_owner_that_was_stopped(self, number: int, old: st.DataObject) -> None:
        claim, before = old.draw(st.sampled_from(self.claims[:-1])), self.row
        assert not self.store.write_results(claim, [LineResult(number, b"late\n", True)])
        assert self.store.renew_claim(claim, self.now) is None
        assert not self.store.start_lines(claim, "late", self.spans, self.now)
        assert not self.store.fail_batch(claim, [], self.now)
        assert not self.store.close_batch(claim, "completed", self.now)
        assert not self.store.finalize_batch(claim, self.now)
        assert self.row == before

    @rule(crash_at=crashes, wanted=st.integers(0, 3))
    def cancel(self, crash_at: int | None, wanted: int) -> None:
        if wanted:  # most batches are to go on
            return
        before = self.row

        def act() -> None:
            try:
                self.store.cancel_batch(OWNER, self.batch, self.now)
            except Conflict:
                assert before.outcome is not None

        self.attempt(act, crash_at)

    @precondition(lambda self: self.claims)
    @rule(crash_at=crashes, expired=st.booleans())
    def close(self, crash_at: int | None, expired: bool) -> None:
        row = self.row
        if row.status == "cancelling" or (row.status == "in_progress" and expired):
            self.attempt(lambda: self.store.close_batch(self.claims[-1], "expired", self.now), crash_at)

    @precondition(lambda self: self.claims)
    @rule(crash_at=crashes)
    def finalize(self, crash_at: int | None) -> None:
        self.attempt(lambda: self.store.finalize_batch(self.claims[-1], self.now), crash_at)

    def results(self) -> list[bytes]:
        return list(self.store.read_results(self.row, 0))

    def teardown(self) -> None:
        try:
            self.bring_to_its_end()
        finally:
            self.patch.stop()
            self.store.close()
            self._temporary.cleanup()

    def bring_to_its_end(self) -> None:
        if not hasattr(self, "batch"):
            return
        assert set(self.written.values()) <= set(self.results())
        self.now += LEASE_SECONDS
        if (claimed := self.store.claim_batch(self.now)) is not None:
            claim = claimed[0]
            self.store.start_lines(claim, "m", self.spans, self.now)
            if self.row.status == "in_progress":
                waiting = self.store.list_waiting(claim, 0, LINES)
                assert {line.number for line in waiting}.isdisjoint(self.written)
                self.store.write_results(claim, [result_of(self.batch, line.number) for line in waiting])
            self.store.close_batch(claim, "completed", self.now)
            assert self.store.finalize_batch(claim, self.now)
        row = self.row
        assert row.status == row.outcome
        assert row.total in (0, LINES)
        assert row.completed + row.failed == row.total
        # The files are the lines in order, of whichever owner.
        answered = {each.number: each for each in (result_of(self.batch, n) for n in range(1, LINES + 1))}
        results = self.results()
        assert len(results) == row.total
        output = [each.content for each in answered.values() if each.content in results and each.is_success]
        assert self.read(row.output_file_id) == b"".join(output)
        assert len(output) == row.completed
        errors = []
        for number in range(1, row.total + 1):
            if answered[number].content in results:
                errors += [] if answered[number].is_success else [answered[number].content]
            else:
                assert row.status != "completed"
                errors.append(unanswered_line(BatchApi.OPENAI, self.batch, number, f"id-{number}", row.status))
        assert self.read(row.error_file_id) == b"".join(errors)
        assert row.output_tokens == 2 * sum(each.content in results for each in answered.values())

    def read(self, file: str | None) -> bytes:
        if file is None:
            return b""
        row = self.store.find_file(OWNER, file)
        assert row is not None
        content = self.store.path_of(file).read_bytes()
        assert len(content) == row.bytes > 0
        return content


CrashingStore.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestCrashingStore = CrashingStore.TestCase


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as opened:
        yield opened


def finish(store: Store, batch: str, spans: list[LineSpan], now: int = 0) -> BatchRow:
    claimed = store.claim_batch(now)
    assert claimed is not None
    claim = claimed[0]
    assert claim.batch == batch
    assert store.start_lines(claim, "m", spans, now)
    assert store.write_results(claim, [result_of(batch, line.number) for line in spans])
    assert store.close_batch(claim, "completed", now)
    assert store.finalize_batch(claim, now)
    row = store.find_batch(OWNER, batch)
    assert row is not None
    return row


@pytest.mark.parametrize("crash_at", range(14))
def test_a_crash_at_each_write_from_the_upload_to_the_end(tmp_path: Path, crash_at: int) -> None:
    disk = Disk()
    disk.writes_left = crash_at
    with mock.patch.object(store_module.os, "fsync", disk.fsync), pytest.raises(Crash):
        disk.writes_left += 1  # the schema's
        with Store(tmp_path, disk.write_point) as store:
            finish(store, *submit(store))
    disk.lose_unsynced(tmp_path, random.Random(crash_at))
    with Store(tmp_path) as store:
        rows = store.list_batches(OWNER, limit=10)
        for file in store.list_files(OWNER, limit=10):
            assert store.path_of(file.id).stat().st_size == file.bytes
        if rows:
            (row,) = rows
            spans = [LineSpan(number, f"id-{number}", 0, 1) for number in range(1, LINES + 1)]
            claimed = store.claim_batch(LEASE_SECONDS)
            assert claimed is not None
            claim = claimed[0]
            store.start_lines(claim, "m", spans, 0)
            waiting = store.list_waiting(claim, 0, LINES)
            store.write_results(claim, [result_of(row.id, line.number) for line in waiting])
            store.close_batch(claim, "completed", 0)
            assert store.finalize_batch(claim, 0)
            row = store.list_batches(OWNER, limit=10)[0]
            assert (row.completed, row.failed) == (4, 2)
            expected = [result_of(row.id, number) for number in range(1, LINES + 1)]
            assert store.path_of(row.output_file_id or "").read_bytes() == b"".join(
                each.content for each in expected if each.is_success
            )


def test_the_list_of_writes_that_crash_is_whole(tmp_path: Path) -> None:
    """The test above crashes at each of them."""
    points: list[str] = []
    with Store(tmp_path, points.append) as store:
        points.clear()
        finish(store, *submit(store))
    assert len(points) == 14


def test_results_come_in_the_order_in_which_they_were_written(store: Store) -> None:
    batch, spans = submit(store)
    claimed = store.claim_batch(0)
    assert claimed is not None
    claim = claimed[0]
    store.start_lines(claim, "m", spans, 0)
    row = store.find_batch(OWNER, batch)
    assert row is not None
    for number in (5, 2, 4):
        store.write_results(claim, [result_of(batch, number)])
    assert list(store.read_results(row, 1)) == [result_of(batch, 2).content, result_of(batch, 4).content]
    assert list(store.read_results(row, 3)) == []


def test_the_first_result_of_a_line_stays(store: Store) -> None:
    batch, spans = submit(store)
    claimed = store.claim_batch(0)
    assert claimed is not None
    claim = claimed[0]
    store.start_lines(claim, "m", spans, 0)
    first = result_of(batch, 1)
    assert store.write_results(claim, [first, LineResult(1, b"second\n", False)])
    assert store.write_results(claim, [LineResult(1, b"third\n", True)])
    row = store.find_batch(OWNER, batch)
    assert row is not None
    assert (row.completed, row.failed, row.output_tokens) == (1, 0, 2)
    assert list(store.read_results(row, 0)) == [first.content]


def test_no_segment_stays_open_between_writes(store: Store, tmp_path: Path) -> None:
    start_batch(store)
    assert not [each.path for each in psutil.Process().open_files() if each.path.startswith(f"{tmp_path}/results")]


def test_results_after_a_failed_write_of_the_same_claim_are_whole(store: Store) -> None:
    claim, row = start_batch(store)

    def fail(point: str) -> None:
        if point == "sync results":
            raise OSError(28, "No space left on device")

    store.write_point = fail
    with pytest.raises(OSError, match="No space"):
        store.write_results(claim, [result_of(row.id, 2)])
    store.write_point = lambda _: None
    assert store.write_results(claim, [result_of(row.id, 3), result_of(row.id, 2)])
    assert list(store.read_results(row, 1)) == [result_of(row.id, 3).content, result_of(row.id, 2).content]


def test_results_of_a_batch_that_closes_while_they_are_read_go_on(store: Store) -> None:
    claim, row = start_batch(store)
    reading = store.read_results(row, 0)
    store.close_batch(claim, "expired", 0)
    unanswered = [unanswered_line(row.api, row.id, each, f"id-{each}", "expired") for each in range(2, LINES + 1)]
    assert list(reading) == [result_of(row.id, 1).content, *unanswered]


def test_a_batch_is_claimed_once_until_its_lease_ends(store: Store) -> None:
    submit(store)
    first = store.claim_batch(0)
    assert first is not None
    assert store.claim_batch(LEASE_SECONDS - 1) is None
    assert store.renew_claim(first[0], LEASE_SECONDS - 1) is not None
    assert store.claim_batch(LEASE_SECONDS + 1) is None
    store.release_claim(first[0])
    second = store.claim_batch(LEASE_SECONDS + 1)
    assert second is not None
    assert second[0].epoch == first[0].epoch + 1


def test_the_earliest_deadline_is_claimed_first(store: Store) -> None:
    late, _ = submit(store, now=100)
    early, _ = submit(store, now=50)
    assert [claimed[1].id for _ in range(2) if (claimed := store.claim_batch(200)) is not None] == [early, late]


def test_the_owner_with_the_fewest_running_batches_is_first_and_has_a_share_at_most(store: Store) -> None:
    for now in range(5):
        submit(store, now=now)
    for now in (5, 6):
        submit(store, now=now, owner="other")
    claimed = []
    while (found := store.claim_batch(10, most_of_owner=3)) is not None:
        claimed.append((found[1].owner, found[1].created_at))
    assert claimed == [(OWNER, 0), ("other", 5), (OWNER, 1), ("other", 6), (OWNER, 2)]
    # A batch that runs no more gives its place back.
    assert store.claim_batch(10 + LEASE_SECONDS, most_of_owner=3) is not None


def test_another_owner_finds_nothing(store: Store) -> None:
    batch, _ = submit(store)
    (file,) = store.list_files(OWNER, limit=10)
    assert store.find_file("other", file.id) is None
    assert store.find_batch("other", batch) is None
    assert store.list_batches("other", limit=10) == store.list_files("other", limit=10) == []
    assert not store.delete_file("other", file.id)
    assert store.cancel_batch("other", batch, 0) is None
    with pytest.raises(KeyError):
        store.list_batches("other", after=batch, limit=10)
    rest = {"endpoint": "/v1/completions", "window": "24h", "expires_at": 1, "metadata": None, "now": 0}
    assert store.create_batch("other", file=file.id, **rest) is None  # type: ignore[arg-type]


def test_an_input_file_is_kept_while_its_batch_is_open(store: Store) -> None:
    batch, spans = submit(store)
    (file,) = store.list_files(OWNER, limit=10)
    with pytest.raises(Conflict, match=batch):
        store.delete_file(OWNER, file.id)
    row = finish(store, batch, spans)
    assert store.delete_file(OWNER, file.id)
    assert not store.path_of(file.id).exists()
    assert len(list(store.read_results(row, 0))) == LINES
    assert store.delete_file(OWNER, row.output_file_id or "")
    assert list(store.read_results(row, 0)) == []


def test_pages_follow_each_other(store: Store) -> None:
    batches = [submit(store, lines=1, now=now)[0] for now in (1, 1, 2, 3)]
    first = store.list_batches(OWNER, limit=3)
    rest = store.list_batches(OWNER, after=first[-1].id, limit=3)
    assert len(rest) == 1
    assert {row.id for row in (*first, *rest)} == set(batches)
    assert [row.created_at for row in (*first, *rest)] == [3, 2, 1, 1]
    oldest = store.list_files(OWNER, limit=10, newest_first=False)
    assert [file.created_at for file in oldest] == [1, 1, 2, 3]
    assert store.list_files(OWNER, after=oldest[1].id, limit=1, newest_first=False) == [oldest[2]]
    assert store.list_files(OWNER, purpose="batch_output", limit=10) == []


def test_content_without_a_row_is_removed_once_it_is_old(store: Store, tmp_path: Path) -> None:
    batch, _ = submit(store)
    upload = store.begin_upload(OWNER, 0)
    upload.write(b"half")
    part = next((tmp_path / "files").glob("*.part"))
    store.remove_orphans(part.stat().st_mtime)
    assert part.exists()
    store.remove_orphans(part.stat().st_mtime + store_module.ORPHAN_SECONDS + 1)
    assert not part.exists()
    assert store.find_batch(OWNER, batch) is not None
    (file,) = store.list_files(OWNER, limit=10)
    assert store.path_of(file.id).exists()
    upload.discard()


def create_message_batch(store: Store) -> str:
    upload = store.begin_upload(OWNER, 0)
    upload.write(b"{}" * LINES)
    spans = [LineSpan(number, f"id-{number}", 2 * number - 2, 2) for number in range(1, LINES + 1)]
    return store.create_message_batch(
        OWNER, upload, spans, endpoint="/v1/messages", window="24h", expires_at=86400, now=0
    ).id


@pytest.mark.parametrize("crash_at", range(4))
def test_a_message_batch_is_there_with_all_its_lines_or_not_at_all(crash_at: int, tmp_path: Path) -> None:
    disk = Disk()
    with Store(tmp_path, disk.write_point) as store:
        disk.writes_left = crash_at
        if crash_at < 3:
            with pytest.raises(Crash):
                create_message_batch(store)
        else:
            create_message_batch(store)
            assert disk.writes_left == 0, "a crash is tried before each of its writes"
    with Store(tmp_path) as store:
        store.remove_orphans(2e9 * 10)
        rows = store.list_batches(OWNER, BatchApi.ANTHROPIC, limit=10)
        assert len(list((tmp_path / "files").iterdir())) == len(rows) == (crash_at == 3)
        claimed = store.claim_batch(0)
        assert (claimed is not None) == (crash_at == 3)
        if claimed is not None:
            assert len(store.list_waiting(claimed[0], 0, 100)) == claimed[1].total == LINES


def test_a_message_batch_that_has_not_ended_cannot_be_deleted(store: Store, tmp_path: Path) -> None:
    batch = create_message_batch(store)
    claimed = store.claim_batch(0)
    assert claimed is not None
    store.write_results(claimed[0], [result_of(batch, 1)])
    with pytest.raises(Conflict, match="in_progress"):
        store.delete_batch(OWNER, batch)
    store.close_batch(claimed[0], "expired", 1)
    with pytest.raises(Conflict, match="finalizing"):
        store.delete_batch(OWNER, batch)
    assert store.finalize_batch(claimed[0], 1)
    row = store.find_batch(OWNER, batch)
    assert row is not None
    assert (row.completed, row.failed, row.unanswered, row.output_file_id) == (1, 5, 5, None)
    assert len(list(store.read_in_order(row))) == LINES
    assert not store.delete_batch("other", batch)
    assert store.delete_batch(OWNER, batch)
    assert not store.delete_batch(OWNER, batch)
    assert store.find_batch(OWNER, batch) is None
    assert list((tmp_path / "files").iterdir()) == list((tmp_path / "results").iterdir()) == []
