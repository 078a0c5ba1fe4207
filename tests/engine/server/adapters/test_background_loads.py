"""Loads that the operator begins and does not wait for: what ``/stats`` reports of them, and what requests get."""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.server.adapters.conftest import PROMPTS, AdaptedServer, AdapterFiles, ServeAdapters
from tests.sources.loopback_hub import LoopbackHub

from paternoster_contract.labels import ADAPTERS_ENV
from paternoster_contract.limits import MAX_ADAPTERS
from paternoster_contract.stats import EngineStats, LoraAdapterStats

ROOM = 2**24


async def begin_load(server: AdaptedServer, name: str, source: str | Path, **fields: Any) -> int:
    body = {"lora_name": name, "lora_path": str(source), "wait": False, **fields}
    return (await server.admin.post("/v1/load_lora_adapter", json=body)).status_code


async def read_reports(server: AdaptedServer) -> dict[str, LoraAdapterStats]:
    stats = EngineStats.model_validate_json((await server.admin.get("/stats")).content)
    assert stats.adapters is not None
    return {adapter.name: adapter for adapter in stats.adapters}


async def wait_for_load(server: AdaptedServer, name: str) -> LoraAdapterStats:
    async with asyncio.timeout(60):
        while (report := (await read_reports(server))[name]).loading:
            await asyncio.sleep(0.01)
    return report


def digest_of(path: Path) -> str:
    return f"sha256:{hashlib.sha256((path / 'adapter_model.safetensors').read_bytes()).hexdigest()}"


async def test_a_load_is_reported_until_it_has_ended(files: AdapterFiles, serve_adapters: ServeAdapters) -> None:
    async with serve_adapters(ROOM) as server:
        server.opened.clear()
        assert await begin_load(server, "sql", files.write(1), lora_version="one") == 200
        report = (await read_reports(server))["sql"]
        assert (report.version, report.ready, report.loading) == ("one", False, True)
        assert (await server.complete("sql", PROMPTS[0])).status_code == 404
        server.opened.set()
        report = await wait_for_load(server, "sql")
        assert (report.version, report.ready, report.fault) == ("one", True, "")
        assert await server.text("sql", PROMPTS[0]) == files.answer(1, PROMPTS[0])
        assert (await server.unload("sql")).status_code == 200
        assert await read_reports(server) == {}


async def test_a_version_that_fails_leaves_the_one_before(files: AdapterFiles, serve_adapters: ServeAdapters) -> None:
    path = files.write(1)
    async with serve_adapters(ROOM) as server:
        await begin_load(server, "sql", f"file://{path}", lora_version="one", lora_digest=digest_of(path))
        assert (await wait_for_load(server, "sql")).ready
        await begin_load(server, "sql", path, lora_version="two", lora_digest=f"sha256:{'0' * 64}")
        await begin_load(server, "other", files.write(2), lora_version="one")
        report = await wait_for_load(server, "sql")
        assert (report.version, report.ready) == ("two", True)
        assert f"has weights with the digest {digest_of(path)}: must be sha256:000" in report.fault
        assert report.failed_at is not None
        assert (await wait_for_load(server, "other")).fault == "", "a broken one is no other one's"
        assert await server.text("sql", PROMPTS[0]) == files.answer(1, PROMPTS[0])
        assert await server.text("other", PROMPTS[0]) == files.answer(2, PROMPTS[0])


async def test_a_fault_is_reported_until_another_try_has_ended(
    files: AdapterFiles, serve_adapters: ServeAdapters, tmp_path: Path
) -> None:
    """Or each try of the operator would look like a change."""
    async with serve_adapters(ROOM) as server:
        await begin_load(server, "sql", tmp_path, lora_version="one")
        failed = await wait_for_load(server, "sql")
        assert "has no adapter_config.json" in failed.fault
        server.opened.clear()
        await begin_load(server, "sql", tmp_path, lora_version="one")
        report = (await read_reports(server))["sql"]
        assert (report.loading, report.fault, report.failed_at) == (True, failed.fault, failed.failed_at)
        for file in files.write(1).iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        server.opened.set()
        report = await wait_for_load(server, "sql")
        assert (report.ready, report.fault, report.failed_at) == (True, "", None)


async def test_of_a_name_the_last_load_counts(files: AdapterFiles, serve_adapters: ServeAdapters) -> None:
    async with serve_adapters(ROOM) as server:
        server.opened.clear()
        for seed in (1, 2, 3):
            await begin_load(server, "sql", files.write(seed), lora_version=str(seed))
        await begin_load(server, "gone", files.write(4))
        assert (await server.unload("gone")).status_code == 200
        server.opened.set()
        report = await wait_for_load(server, "sql")
        assert (report.version, report.ready) == ("3", True)
        assert await server.text("sql", PROMPTS[0]) == files.answer(3, PROMPTS[0])
        assert "gone" not in await read_reports(server)


async def test_a_name_that_is_unloaded_while_it_is_loaded_stands_for_nothing(
    files: AdapterFiles, serve_adapters: ServeAdapters
) -> None:
    async with serve_adapters(ROOM) as server:
        server.opened.clear()
        await begin_load(server, "sql", files.write(1))
        await asyncio.sleep(0.05)  # its files are being opened
        assert (await server.unload("sql")).status_code == 200
        server.opened.set()
        await begin_load(server, "other", files.write(2))
        await wait_for_load(server, "other")
        assert [named.name for named in server.store.named] == ["other"]


async def test_what_is_wrong_with_a_call_is_answered_at_once(
    files: AdapterFiles, serve_adapters: ServeAdapters
) -> None:
    path = files.write(1)
    async with serve_adapters(ROOM) as server:
        assert await begin_load(server, "base", path) == 400
        assert await begin_load(server, "x" * 10_000, path) == 400
        assert await begin_load(server, "sql", path, lora_digest="md5:1") == 400
        assert await begin_load(server, "sql", path, lora_version="v" * 65) == 400
        for number in range(MAX_ADAPTERS):
            assert await begin_load(server, f"a{number}", path) == 200
        assert await begin_load(server, "one-more", path) == 400
        assert len(await read_reports(server)) == MAX_ADAPTERS
    async with serve_adapters(0) as server:
        assert await begin_load(server, "sql", path) == 400
        assert (await server.admin.get("/stats")).json()["adapters"] is None


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], LoopbackHub]:
    monkeypatch.setenv(ADAPTERS_ENV, str(tmp_path / "adapters"))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    return LoopbackHub


async def test_an_adapter_of_a_hub_is_fetched_checked_and_read_again(
    hub: Callable[[], LoopbackHub],
    files: AdapterFiles,
    serve_adapters: ServeAdapters,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def add(seed: int, commit: str) -> str:
        path = files.write(seed)
        served.add("org/sql", {file.name: file.read_bytes() for file in path.iterdir()}, commit=commit)
        return digest_of(path)

    async with serve_adapters(files.nbytes) as server:
        with hub().running() as served:
            monkeypatch.setenv("HF_ENDPOINT", served.url)
            digest = add(1, "a" * 40)
            await begin_load(server, "sql", "hf://org/sql", lora_digest=digest, lora_version="one")
            assert (await wait_for_load(server, "sql")).fault == ""
            assert await server.text("sql", PROMPTS[0]) == files.answer(1, PROMPTS[0])
            digest = add(2, "b" * 40)
            await begin_load(server, "sql", "hf://org/sql", lora_digest=digest, lora_version="two")
            assert (await wait_for_load(server, "sql")).fault == ""
            assert await server.text("sql", PROMPTS[0]) == files.answer(2, PROMPTS[0])
            await begin_load(server, "absent", "hf://org/absent")
            assert "org/absent" in (await wait_for_load(server, "absent")).fault
            card = (await server.client.get("/v1/models")).json()["data"][-1]
            assert (card["id"], card["root"], card["parent"]) == ("sql", "hf://org/sql", "base")
        # Evicted, it is read again from this machine's disk.
        await server.load("second", files.write(3))
        assert await server.text("second", PROMPTS[0]) == files.answer(3, PROMPTS[0])
        assert await server.text("sql", PROMPTS[0]) == files.answer(2, PROMPTS[0])
