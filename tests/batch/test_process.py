"""``paternoster batch`` as a process: killed at any moment, and what it takes of memory."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import psutil
import pytest
from tests.batch.conftest import ENDPOINT, StubGateway, ended, lines, submit, until

from paternoster_batch.runner import MAX_IN_FLIGHT

LINES = 600


@contextmanager
def running(folder: Path, gateway: str, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and its URL."""
    code = "import sys; from paternoster_contract.cli.command import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "batch", "--data", str(folder), "--gateway", gateway, "--port", "0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on "), line
        yield process, line.removeprefix("listening on ").strip()
    finally:
        process.kill()
        process.wait()


async def answer_count(client: openai.AsyncOpenAI, batch: str) -> int:
    return int((await client.batches.retrieve(batch)).request_counts.completed)


@pytest.mark.slow
async def test_a_batch_whose_service_is_killed_twice_ends_as_an_undisturbed_one(
    tmp_path: Path, gateway: StubGateway
) -> None:
    gateway.gate = asyncio.Event()
    with running(tmp_path / "data", gateway.url) as (process, url):
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
            batch = await submit(client, lines(LINES))
            await until(_read(gateway), lambda count: count > 0)
        process.kill()
        process.wait()
    # The same batch, so that its ids and seeds are the same.
    shutil.copytree(tmp_path / "data", tmp_path / "undisturbed")
    gateway.gate.set()
    with running(tmp_path / "undisturbed", gateway.url) as (_, url):
        expected = await read_output(url, batch)
    assert len(expected.splitlines()) == LINES

    before = len(gateway.bodies)
    answered = 0
    for wanted in (50, 150):
        with running(tmp_path / "data", gateway.url) as (process, url):
            async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
                answered = await until(lambda: answer_count(client, batch), lambda count, wanted=wanted: count > wanted)
            process.kill()
            process.wait()
    assert answered < LINES
    with running(tmp_path / "data", gateway.url) as (process, url):
        assert await read_output(url, batch) == expected
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    # What ran at a kill alone was sent twice.
    assert LINES <= len(gateway.bodies) - before <= LINES + 2 * MAX_IN_FLIGHT


def _read(gateway: StubGateway):  # type: ignore[no-untyped-def]
    async def count() -> int:
        return len(gateway.bodies)

    return count


async def read_output(url: str, batch: str) -> bytes:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        done = await ended(client, batch)
        assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", LINES, 0)
        assert done.error_file_id is None
        return (await client.files.content(done.output_file_id)).content


@pytest.mark.slow
async def test_the_largest_file_takes_little_memory(tmp_path: Path, gateway: StubGateway) -> None:
    """50,000 lines of 4 kB, uploaded and validated: they fail, as their model is not served, before any is sent."""
    text = "x" * 3950

    async def form() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for number in range(50_000):
            body = {"model": "none", "messages": [{"role": "user", "content": text}]}
            line = {"custom_id": f"id-{number}", "method": "POST", "url": ENDPOINT, "body": body}
            yield json.dumps(line).encode() + b"\n"
        yield b"\r\n--b--\r\n"

    with running(tmp_path / "data", gateway.url) as (process, url):
        before = psutil.Process(process.pid).memory_info().rss
        async with httpx.AsyncClient(base_url=f"{url}/v1", timeout=300) as client:
            headers = {"Content-Type": "multipart/form-data; boundary=b"}
            file = (await client.post("/files", content=form(), headers=headers)).json()
            assert file["bytes"] > 200_000_000
            new = {"input_file_id": file["id"], "endpoint": ENDPOINT, "completion_window": "24h"}
            batch = (await client.post("/batches", json=new)).json()["id"]

            async def read_status() -> dict[str, object]:
                return dict((await client.get(f"/batches/{batch}")).json())

            failed = await until(read_status, lambda seen: seen["status"] == "failed")
        assert failed["errors"]["data"][0]["code"] == "model_not_found"  # type: ignore[index]
        assert read_peak(process.pid) - before < 64 * 2**20


@pytest.mark.slow
async def test_the_largest_message_batch_takes_little_memory(tmp_path: Path, gateway: StubGateway) -> None:
    """100,000 requests of 2.6 kB, validated: they are refused, as their model is not served, before any is sent."""
    text = "x" * 2500

    async def body() -> AsyncIterator[bytes]:
        yield b'{"requests": ['
        for number in range(100_000):
            params = {"model": "none", "max_tokens": 1, "messages": [{"role": "user", "content": text}]}
            yield (b"," if number else b"") + json.dumps({"custom_id": f"id-{number}", "params": params}).encode()
        yield b"]}"

    with running(tmp_path / "data", gateway.url) as (process, url):
        before = psutil.Process(process.pid).memory_info().rss
        async with httpx.AsyncClient(base_url=f"{url}/v1", timeout=300) as client:
            refused = await client.post("/messages/batches", content=body())
        assert refused.status_code == 400
        assert "requests.0.params.model" in refused.json()["error"]["message"]
        assert read_peak(process.pid) - before < 64 * 2**20
    assert list((tmp_path / "data/files").iterdir()) == []


def read_peak(process: int) -> int:
    """Bytes of memory that the process has had at most."""
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--api-keys", "keys"], "--api-keys needs --gateway-key"),
        (["--gateway-key", "keys"], "--gateway-key needs --api-keys"),
        (["--gateway", "host:1"], "--gateway is 'host:1': must be a URL"),
        (["--data", "/dev/null/x"], "--data, --host, --port: "),
    ],
)
def test_flags_that_cannot_be_are_named(
    flags: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from paternoster_contract.cli.command import main

    assert main(["batch", "--gateway", "http://a", "--data", str(tmp_path), "--port", "0", *flags]) == 2
    assert words in capsys.readouterr().err
