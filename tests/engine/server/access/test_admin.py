"""Two ports: the admin API is on one of them alone, what is open to everyone on both; and a drain that is undone."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paternoster_engine.server.errors import Draining, Ending
from paternoster_engine.server.state import ServedModel, ServerState

ADMIN = [
    ("GET", "/admin/config"),
    ("PATCH", "/admin/config"),
    ("POST", "/admin/drain"),
    ("DELETE", "/admin/drain"),
    ("POST", "/admin/reset-prefix-cache"),
]
OPEN = ("/health", "/ready", "/stats", "/metrics", "/version")
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


async def test_each_port_has_its_own_routes(serve: Any) -> None:
    async with serve() as server:
        for method, path in ADMIN:
            assert (await server.client.request(method, path)).status_code == 404
        for method, path in [("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("POST", "/tokenize")]:
            assert (await server.admin.request(method, path, json=CHAT)).status_code == 404
        for path in OPEN:
            assert (await server.client.get(path)).status_code == 200
            assert (await server.admin.get(path)).status_code == 200


async def test_a_drain_is_undone(serve: Any) -> None:
    async with serve("one two") as server:
        assert (await server.admin.delete("/admin/drain")).json()["draining"] is False
        for _ in range(2):
            assert (await server.admin.post("/admin/drain")).json()["draining"] is True
            assert (await server.client.get("/stats")).json()["state"] == "draining"
            assert (await server.client.post("/v1/chat/completions", json=CHAT)).status_code == 503
            assert (await server.admin.delete("/admin/drain")).json()["draining"] is False
            assert (await server.client.get("/ready")).status_code == 200
            assert (await server.client.get("/stats")).json()["state"] == "ready"
            assert (await server.client.post("/v1/chat/completions", json=CHAT)).status_code == 200


async def test_the_drain_of_an_ending_process_is_not(serve: Any) -> None:
    async with serve() as server:
        await server.admin.post("/admin/drain")
        server.state.begin_end()
        refused = await server.admin.delete("/admin/drain")
        assert (refused.status_code, refused.json()["error"]["type"]) == (409, "ConflictError")
        assert refused.json()["error"]["message"] == (
            "The engine drains because its process ends: that cannot be undone."
        )
        assert (await server.client.get("/ready")).status_code == 503


@given(st.lists(st.sampled_from(["drain", "admit", "begin_end"]), max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_admits_unless_the_last_word_was_to_drain_or_it_ends(tokenizer: Any, orders: list[str]) -> None:
    state = ServerState()
    state.serve(ServedModel("m", 1, None, None, None, None, None))  # type: ignore[arg-type]
    for i, order in enumerate(orders):
        if order == "admit" and "begin_end" in orders[:i]:
            with pytest.raises(Ending):
                state.admit()
        else:
            getattr(state, order)()
    if "begin_end" in orders or orders[-1:] == ["drain"]:
        with pytest.raises(Draining):
            state.find_target(None)
    else:
        assert state.find_target(None).name == "m"
