"""Several processes and one folder: ``paternoster pull`` as it is run."""

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sources.file_server import Answer
from tests.sources.loopback_hub import LoopbackHub
from tests.sources.model_files import AT_ONCE, model_files

from paternoster_contract.labels import MODEL_EXIT_STATUS
from paternoster_sources import errors
from paternoster_sources.fetch import fetch_model
from paternoster_sources.storage.cache import DownloadCache

PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))
WEIGHTS = "model.safetensors"
PATIENCE = 60.0


@contextlib.contextmanager
def pull(address: str, *flags: str) -> Iterator[subprocess.Popen[str]]:
    command = [PATERNOSTER, "pull", address, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, "it did not come to that"
        time.sleep(0.05)


def state(file: Path) -> str:
    try:
        return str(json.loads(file.read_text().partition("\n")[0])["state"])
    except (OSError, ValueError):
        return ""


class Gate:
    """Holds the CDN's answers back until it is opened."""

    def __init__(self, hub: LoopbackHub) -> None:
        self.held = threading.Semaphore(0)
        self.open = threading.Event()
        answer = hub.cdn.answer

        def gated(path: str, headers: dict[str, str]) -> Answer:
            self.held.release()
            self.open.wait(PATIENCE)
            return answer(path, headers)

        hub.cdn.answer = gated


def test_two_processes_and_one_download(hub: LoopbackHub, cache: DownloadCache, tmp_path: Path) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    gate = Gate(hub)
    status_files = [tmp_path / "one", tmp_path / "two"]
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(pull("hf://org/tiny", "--status-file", str(file))) for file in status_files]
        until(lambda: "waiting" in map(state, status_files))
        gate.open.set()
        paths = [Path(process.communicate(timeout=PATIENCE)[0].strip()) for process in both]
        assert [process.returncode for process in both] == [0, 0]
    assert paths[0] == paths[1]
    assert (paths[0] / WEIGHTS).read_bytes() == files[WEIGHTS]
    assert len(hub.cdn.of(hub.blob_path(files[WEIGHTS]))) == 1
    assert list(map(state, status_files)) == ["ready", "ready"]


def test_what_is_there_is_taken_without_asking_for_it(hub: LoopbackHub, cache: DownloadCache) -> None:
    """Pods of a fleet that start later do so: the same weights, whatever the branch has by then."""
    repo = hub.add("org/tiny", model_files())
    with pull("hf://org/tiny", "--no-refresh") as process:
        first, _ = process.communicate(timeout=PATIENCE)
    received = list(hub.hub.received)
    repo.commit = "b" * 40
    with pull("hf://org/tiny", "--no-refresh") as process:
        second, _ = process.communicate(timeout=PATIENCE)
    assert Path(first.strip()).is_dir()
    assert (process.returncode, second) == (0, first)
    assert received == hub.hub.received != []
    with pull("hf://org/tiny") as process:
        third, _ = process.communicate(timeout=PATIENCE)
    assert third != first


def test_who_waits_gets_a_model_that_is_in_use_from_then_on(hub: LoopbackHub, cache: DownloadCache) -> None:
    """An engine keeps its lease: a wait for the lock alone would last as long as the engine lives."""
    hub.add("org/tiny", model_files())
    model = fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    with pull("hf://org/tiny") as process:
        output, _ = process.communicate(timeout=PATIENCE)
    assert Path(output.strip()) == model.path
    assert model.lease is not None


def test_a_killed_process_leaves_no_lock_and_its_bytes(hub: LoopbackHub, cache: DownloadCache) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    path, cut = hub.blob_path(files[WEIGHTS]), len(files[WEIGHTS]) * 3 // 10
    hub.cdn.breaks[path] = [cut]
    with pull("hf://org/tiny") as process:
        until(lambda: any(file.stat().st_size == cut for file in cache.folder.rglob(WEIGHTS)))
        process.kill()
        process.wait()
    before = len(hub.cdn.of(path))
    model = fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert (model.path / WEIGHTS).read_bytes() == files[WEIGHTS]
    assert {request.start for request in hub.cdn.of(path)[before:]} <= {cut}


@pytest.mark.parametrize(
    ("address", "reason", "status"),
    [
        ("hf://org/none", "SourceNotFound", MODEL_EXIT_STATUS),
        ("hf://org/tiny@v9", "RevisionNotFound", MODEL_EXIT_STATUS),
        ("hf://org/gated", "GatedModel", MODEL_EXIT_STATUS),
        ("hf://org/corrupted", "Corrupted", 1),
        ("nowhere", "InvalidAddress", MODEL_EXIT_STATUS),
    ],
)
def test_a_refusal_is_told_to_people_and_to_programs(
    hub: LoopbackHub, tmp_path: Path, address: str, reason: str, status: int
) -> None:
    hub.add("org/tiny", model_files())
    hub.add("org/gated", model_files(), gated=True)
    hub.add("org/corrupted", model_files(seed=7))
    hub.blobs = {digest: b"x" * len(data) for digest, data in hub.blobs.items()}
    status_file = tmp_path / "status"
    status_file.write_text("what was there before, and is longer than what comes\n" * 100)
    with pull(address, "--status-file", str(status_file)) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    assert out == ""
    assert err.startswith(f"paternoster pull: {reason}: ")
    assert len(err.splitlines()) == 1
    (line,) = status_file.read_text().splitlines()
    report = json.loads(line)
    assert (report["state"], report["reason"], report["transient"]) == ("failed", reason, status == 1)
    assert address in report["message"]
    assert len(line) < 4096


def test_progress_counts_bytes(hub: LoopbackHub, cache: DownloadCache) -> None:
    hub.add("org/tiny", model_files())
    reports = []
    fetch_model("hf://org/tiny", cache, report=reports.append, retry=AT_ONCE)
    assert reports[-1].state == "ready"
    assert all(0 <= one.done <= one.total for one in reports)
    assert {one.total for one in reports} == {reports[-1].done}


def test_the_folder_needs_only_to_be_read(hub: LoopbackHub, cache: DownloadCache) -> None:
    """Pods mount a volume read-only after one has filled it."""
    hub.add("org/tiny", model_files())
    model = fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert model.lease is not None
    model.lease.close()
    folder = str(cache.folder)
    if subprocess.run(["mount", "--bind", folder, folder], capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        again = fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
        assert again.path == model.path
        assert again.lease is not None
        again.lease.close()
        with pytest.raises(errors.CacheUnusable, match=os.strerror(errno.EROFS)):
            fetch_model("hf://org/tiny", DownloadCache(cache.folder / "other"), retry=AT_ONCE)
    finally:
        subprocess.run(["umount", folder], check=True)


def test_progress_is_told_over_http_while_it_lasts(hub: LoopbackHub, cache: DownloadCache) -> None:
    hub.add("org/tiny", model_files())
    gate = Gate(hub)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def read_status() -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats", timeout=PATIENCE) as answer:
                return dict(json.load(answer))
        except urllib.error.URLError:
            return {}

    with pull("hf://org/tiny", "--status-port", str(port)) as process:
        # A client that connects and sends nothing.
        until(lambda: read_status() != {})
        with socket.create_connection(("127.0.0.1", port)):
            until(lambda: read_status().get("state") == "downloading")
        status = read_status()
        assert 0 <= status["done"] < status["total"]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/other", timeout=PATIENCE)
        gate.open.set()
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    assert read_status() == {}


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_status_port_that_is_none(hub: LoopbackHub, port: str) -> None:
    with pull("hf://org/tiny", "--status-port", port) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, "")
    assert err.startswith(f"paternoster pull: --status-port is '{port}': ")


def test_a_status_file_that_cannot_be_written(hub: LoopbackHub) -> None:
    hub.add("org/tiny", model_files())
    with pull("hf://org/tiny", "--status-file", "/there/is/none") as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, "")
    assert err == "paternoster pull: --status-file is '/there/is/none': No such file or directory\n"
    assert hub.hub.received == []


def on_a_terminal(*command: str) -> str:
    """What ``command`` writes there."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        command, stdout=theirs, stderr=theirs, stdin=theirs, env=os.environ | {"TERM": "xterm"}
    ) as one:
        os.close(theirs)
        shown = b""
        # Where no process has the other end any more, Linux returns an error.
        with contextlib.suppress(OSError):
            while data := os.read(ours, 4096):
                shown += data
        assert one.wait(PATIENCE) in (0, MODEL_EXIT_STATUS)
    os.close(ours)
    return shown.decode()


def test_a_bar_on_a_terminal(hub: LoopbackHub, cache: DownloadCache) -> None:
    hub.add("org/tiny", model_files())
    shown = on_a_terminal(PATERNOSTER, "pull", "hf://org/tiny")
    assert "hf://org/tiny" in shown
    assert "━" in shown
    model = cache.find_model("hf://org/tiny")
    assert model is not None
    assert shown.rstrip().endswith(str(model.path))


def test_an_address_is_no_markup_of_the_terminal(hub: LoopbackHub) -> None:
    shown = on_a_terminal(PATERNOSTER, "pull", "hf://org/[red]no")
    assert "[red]no" in shown
