"""What a server answers while it loads, serves, drains or hangs, and what its admin API changes."""

import asyncio
from typing import Any

import pytest

from paternoster_contract.http.headers import NOT_SERVING
from paternoster_engine.core.batch import Batch, StepResult

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0}


async def test_nothing_but_probes_while_loading(serve: Any) -> None:
    async with serve(loaded=False) as server:
        get, post = server.client.get, server.client.post
        assert (await get("/health")).status_code == 200
        assert (await get("/ready")).status_code == 503
        assert (await get("/metrics")).status_code == 200
        answers = [
            await post("/v1/chat/completions", json=CHAT), await post("/v1/completions", json={"prompt": "Hi"}),
            await post("/tokenize", json={"prompt": "Hi"}), await get("/v1/models"), await get("/stats"),
            await server.admin.get("/admin/config"), await server.admin.post("/admin/drain"),
            await server.admin.delete("/admin/drain"), await server.admin.get("/stats"),
        ]  # fmt: skip
        assert {answer.status_code for answer in answers} == {503}
        assert all("retry-after" in answer.headers for answer in answers)
        assert {answer.headers.get(NOT_SERVING) for answer in answers} == {"loading"}


async def test_draining_refuses_the_new_and_finishes_the_old(serve: Any) -> None:
    async with serve("one two") as server:
        assert (await server.client.get("/ready")).status_code == 200
        server.runner.gate.clear()
        old = asyncio.create_task(server.client.post("/v1/completions", json={"prompt": "Hi"}))
        await asyncio.to_thread(server.runner.entered.wait)
        assert (await server.admin.post("/admin/drain")).json()["draining"] is True
        assert (await server.client.get("/ready")).status_code == 503
        assert (await server.client.get("/health")).status_code == 200
        refused = await server.client.post("/v1/chat/completions", json=CHAT)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.headers[NOT_SERVING] == "draining"
        assert server.state.in_flight == 1
        server.runner.gate.set()
        assert (await old).json()["choices"][0]["text"] == "one two"
        await server.state.wait_idle()
        assert (await server.client.get("/stats")).json()["state"] == "draining"


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("step_seconds", "limit"), [(None, 60.0), (0.1, 8.0), (2.0, 40.0)])
async def test_health_is_how_long_the_step_lasts(
    serve: Any, monkeypatch: pytest.MonkeyPatch, step_seconds: float | None, limit: float, overlap: bool
) -> None:
    """Without a step of its size before, with short ones and with long ones before."""
    now, body = [0.0], {"prompt": [7] * 9, "max_tokens": 4}
    async with serve(clock=lambda: now[0], prefix_cache=False, overlap=overlap) as server:
        if step_seconds is not None:
            execute = server.runner.execute

            def execute_slowly(batch: Batch) -> StepResult:
                now[0] += step_seconds
                return execute(batch)

            with monkeypatch.context() as patch:
                patch.setattr(server.runner, "execute", execute_slowly)
                assert (await server.client.post("/v1/completions", json=body)).status_code == 200
        server.runner.gate.clear()
        server.runner.entered.clear()
        pending = asyncio.create_task(server.client.post("/v1/completions", json=body))
        await asyncio.to_thread(server.runner.entered.wait)
        began = now[0]
        now[0] = began + limit
        assert (await server.client.get("/health")).status_code == 200
        now[0] = began + limit + 1
        stalled = await server.client.get("/health")
        assert (stalled.status_code, stalled.json()["status"]) == (503, "stalled")
        server.runner.gate.set()
        await pending
        assert (await server.client.get("/health")).status_code == 200


async def test_live_cap(serve: Any) -> None:
    async with serve() as server:
        patch = server.admin.patch
        assert (await patch("/admin/config", json={"live_cap": 2})).json() == {
            "capacity": 4, "live_cap": 2, "max_batched_tokens": 64, "token_budget": 64,
            "max_queue_milliseconds": 0, "draining": False,
        }  # fmt: skip
        refused = await patch("/admin/config", json={"live_cap": 5})
        too_high = refused.json()["error"]
        assert (refused.status_code, too_high["param"]) == (400, "live_cap")
        assert "5" in too_high["message"]
        assert "4" in too_high["message"]
        assert (await patch("/admin/config", json={"live_cap": 0})).status_code == 400
        assert (await patch("/admin/config", json={"cap": 1})).json()["error"]["param"] in ("live_cap", "cap")
        assert (await server.admin.get("/admin/config")).json()["live_cap"] == 2
        assert (await server.client.get("/stats")).json()["live_cap"] == 2


async def test_token_budget(serve: Any) -> None:
    async with serve() as server:
        patch = server.admin.patch
        limits = (await patch("/admin/config", json={"token_budget": 16})).json()
        assert (limits["token_budget"], limits["live_cap"]) == (16, 4)
        refused = await patch("/admin/config", json={"live_cap": 2, "token_budget": 99999})
        both = refused.json()["error"]
        assert (refused.status_code, both["param"]) == (400, "token_budget")
        assert "99999" in both["message"]
        stats = (await server.client.get("/stats")).json()
        assert (stats["token_budget"], stats["live_cap"]) == (16, 4), "all of a patch or nothing"
        assert (await patch("/admin/config", json={"token_budget": 0})).status_code == 400
        assert (await patch("/admin/config", json={})).status_code == 400


async def test_reset_prefix_cache(serve: Any) -> None:
    async with serve() as server:
        await server.client.post("/v1/completions", json={"prompt": [7] * 17, "max_tokens": 1})
        assert (await server.client.get("/stats")).json()["kv_blocks_cached"] == 2
        assert (await server.admin.post("/admin/reset-prefix-cache")).json() == {"blocks_freed": 2}
        assert (await server.client.get("/stats")).json()["kv_blocks_cached"] == 0
