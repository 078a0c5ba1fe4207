"""A routing table that is no UTF-8, then a good one: the gateway reports the first and follows the second."""

import asyncio
import logging
from pathlib import Path

import pytest

from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_gateway.sent_keys import SentKeys
from paternoster_gateway.table import source as tables
from paternoster_gateway.table.source import TableSource


def _naming(model: str) -> bytes:
    return RoutingTable(models={model: ModelRoute()}).model_dump_json().encode()


BROKEN = {
    "no UTF-8": b'{"models": {"\xff\xfe": {}}}',
    "no UTF-8 at all": bytes(range(128, 256)) * 10,
    "half a character": b'{"models": {"caf\xc3',
    "a lone surrogate": b'{"models": {"\\ud800": 7}}',
    "deep": b'{"models": ' + b"[" * 100_000,
    "NUL bytes": b"\0" * 1000,
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_the_next_table_is_followed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tables, "PERIOD_SECONDS", 0.01)
    file = tmp_path / "routes.json"
    file.write_bytes(_naming("first"))
    source = TableSource(str(file), lambda _: None, SentKeys(None, "gateway-to-operator"))

    async def until(seen: str) -> None:
        async with asyncio.timeout(20):
            while set(source.table.models) != {seen}:
                assert not following.done(), "it follows no more"
                await asyncio.sleep(0.01)

    following = asyncio.create_task(source.follow_table())
    try:
        await until("first")
        with caplog.at_level(logging.WARNING):
            file.write_bytes(BROKEN[kind])
            async with asyncio.timeout(20):
                while "going on with the last one" not in caplog.text:
                    assert not following.done(), "it follows no more"
                    await asyncio.sleep(0.01)
        assert set(source.table.models) == {"first"}
        assert len(caplog.records[-1].getMessage()) < 500
        file.write_bytes(_naming("second"))
        await until("second")
    finally:
        following.cancel()
