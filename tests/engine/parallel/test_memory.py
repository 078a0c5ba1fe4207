"""Two ranks, in two processes over gloo, that have not the same room for the KV pool."""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from tests.engine.parallel.tiny import measure, save_tiny

ROOT = Path(__file__).resolve().parents[3]


def test_ranks_agree_on_what_the_one_with_least_room_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, store = save_tiny(tmp_path), tmp_path / "store"
    # The other process imports this folder's module by its full name.
    monkeypatch.setattr("sys.path", [*sys.path, str(ROOT)])
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        theirs = other.submit(measure, 1, model, store, 1_000_000)
        assert measure(0, model, store, 3_000_000) == 2 * 900_000
        assert theirs.result() == 2 * 900_000
