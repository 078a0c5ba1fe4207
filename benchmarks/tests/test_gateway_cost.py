"""The gateway's cost is measured with a gateway process as it is, before engines that answer all requests."""

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from gateway import cost
from gateway.cost_load import KINDS, Connection, body_around
from harness.fake_engine import ANSWER, CHAT, EngineConnection, RawEngine
from harness.processes import cpu_seconds


def test_each_kind_is_measured_in_each_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    amounts = ["--turns=2", "--requests=6", "--long-requests=2", "--connections=2", "--streams=3", "--frames=2"]
    monkeypatch.setattr(sys, "argv", ["cost", "--systems", "paternoster", *amounts, "--json", str(file)])
    assert cost.main() == 0
    results = json.loads(file.read_text())
    assert results["failed"] == {}
    assert results["seconds"].keys() == {"paternoster"}
    for kind in KINDS:
        assert len(results["seconds"]["paternoster"][kind]) == 2
        assert all(seconds > 0 for seconds in results["seconds"]["paternoster"][kind])


def test_a_peer_that_cannot_be_set_up_is_stated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(engines: object, folder: object) -> None:
        raise cost.SetUpError("envoy: packages: exit status 1")

    monkeypatch.setitem(cost.PROXIES, "envoy", refuse)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "argv", ["cost", "--systems", "envoy"])
    assert cost.main() == 1
    assert "envoy was not measured: envoy: packages: exit status 1" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "named"), [("--systems=nginx", "nginx"), ("--turns=0", "--turns: is 0")])
def test_flags_that_cannot_be_are_refused(
    flag: str, named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cost", flag])
    with pytest.raises(SystemExit):
        cost.main()
    assert named in capsys.readouterr().err


def test_a_ratio_is_that_to_the_reference_in_the_same_turn() -> None:
    seconds = {"paternoster": {"small": [2.0, 9.0, 8.0]}, "envoy": {"small": [1.0, 3.0, 2.0]}}
    assert cost.ratios_to_reference(seconds, "paternoster", "small") == [2.0, 3.0, 4.0]
    assert cost.ratios_to_reference({"paternoster": seconds["paternoster"]}, "paternoster", "small") == []


def test_a_ratio_above_its_budget_is_stated() -> None:
    envoy = {kind: [1.0, 1.0] for kind in KINDS}
    least = {kind: [cost.BUDGETS[kind]] * 2 for kind in KINDS}
    assert cost.find_exceeded({"paternoster": least, "envoy": envoy}) == []
    assert cost.find_exceeded({"paternoster": least}) == []
    above = {**least, "large": [cost.BUDGETS["large"] + 0.1] * 2}
    (text,) = cost.find_exceeded({"paternoster": above, "envoy": envoy})
    assert text.startswith("large is ")


@pytest.mark.parametrize("piece", [1, 7, 1000, 10**6])
def test_requests_and_answers_come_in_any_pieces(piece: int) -> None:
    class Transport(asyncio.Transport):
        def __init__(self) -> None:
            self.written = b""

        def write(self, data: bytes) -> None:  # type: ignore[override]
            self.written += data

        def writelines(self, data: list[bytes]) -> None:  # type: ignore[override]
            self.written += b"".join(data)

    async def exchange(stream: bool) -> tuple[bytes, int]:
        engine, served, asking = RawEngine(), Transport(), Transport()
        answering, client = EngineConnection(engine.streams), Connection()
        answering.connection_made(served)
        client.connection_made(asking)
        first, last = body_around(9000, stream=stream)
        head = f"POST {CHAT} HTTP/1.1\r\nContent-Length: {len(first + last)}\r\n\r\n".encode()
        answer = client.send_request([head, first, last])
        for begin in range(0, len(asking.written), piece):
            answering.data_received(asking.written[begin : begin + piece])
        assert len(engine.streams) == stream
        engine.write_frames()
        engine.end_streams()
        for begin in range(0, len(served.written), piece):
            assert not answer.done()
            client.data_received(served.written[begin : begin + piece])
        await answer
        return served.written, client.events

    written, events = asyncio.run(exchange(stream=False))
    assert written.endswith(ANSWER)
    assert events == 0
    assert asyncio.run(exchange(stream=True))[1] == 2


def test_another_status_fails() -> None:
    async def read_refusal() -> None:
        client = Connection()
        client._transport = asyncio.Transport()
        client._answer = asyncio.get_running_loop().create_future()
        client.data_received(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        await client._answer

    with pytest.raises(RuntimeError, match="401 Unauthorized"):
        asyncio.run(read_refusal())


def test_processor_time_has_that_of_ended_threads() -> None:
    def compute() -> None:
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass

    before = cpu_seconds(os.getpid())
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert cpu_seconds(os.getpid()) - before >= 0.05
