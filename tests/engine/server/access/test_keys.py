"""Key files before the routes: any key of them opens, none opens nothing, and they are read again as they change."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paternoster_contract.access.key_files import KeyFiles
from paternoster_engine.server.app import create_admin_app, create_app
from paternoster_engine.server.state import ServerState

REREAD_WITHIN = 10.0
"""Seconds on a busy machine; it is one on another."""
KEY = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
SEVERAL = st.lists(KEY, unique=True, max_size=4)


def request_status(app: FastAPI, method: str, path: str, authorization: str | None = None) -> int:
    async def status() -> int:
        headers = {} if authorization is None else {"authorization": authorization}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine") as client:
            return (await client.request(method, path, headers=headers)).status_code

    return asyncio.run(status())


@given(SEVERAL, SEVERAL, KEY)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_keys_of_now_open_and_no_others(tmp_path: Path, before: list[str], after: list[str], other: str) -> None:
    """503 is the answer of a model that loads, to who is let in."""
    now, file = [0.0], tmp_path / "keys"
    app = create_app(ServerState(), KeyFiles(file, lambda: now[0]))
    for keys in (before, after):
        file.write_text("\n".join(keys))
        now[0] += 1
        for key in {*before, *after, other}:
            assert request_status(app, "GET", "/v1/models", f"Bearer {key}") == (503 if key in keys else 401)


@pytest.mark.parametrize("content", [None, "", "\n \n"])
def test_without_a_key_nobody_is_let_in(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
    app, admin = create_app(ServerState(), KeyFiles(file)), create_admin_app(ServerState(), KeyFiles(file))
    for authorization in (None, "", "Bearer", "Bearer ", "Bearer None", "Basic eDp5"):
        assert request_status(app, "GET", "/v1/models", authorization) == 401
        assert request_status(admin, "GET", "/admin/config", authorization) == 401


def test_what_is_guarded(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("k")
    keys = KeyFiles(tmp_path)
    app, admin = create_app(ServerState(), keys), create_admin_app(ServerState(), keys)
    guarded = [
        (app, "/v1/models"), (app, "/v1/chat/completions"), (app, "/v1"), (app, "/v1/nope"), (app, "/tokenize"),
        (app, "/detokenize"), (app, "/stats"), (app, "/metrics"),
        (admin, "/admin/config"), (admin, "/admin/drain"), (admin, "/admin"),
    ]  # fmt: skip
    for server, path in guarded:
        assert request_status(server, "POST", path) == 401
        assert request_status(server, "POST", path, "Bearer wrong") == 401
        assert request_status(server, "POST", path, "k") == 401
        assert request_status(server, "POST", path, "bearer k") not in (401, 500)
    for server in (app, admin):
        for path in ("/health", "/ready", "/version"):
            assert request_status(server, "GET", path) in (200, 503)
    for path in ("/stats", "/metrics"):
        assert request_status(admin, "GET", path) in (200, 503), "operator and scrapers are told"


def test_without_the_flags_all_is_open() -> None:
    assert request_status(create_app(ServerState()), "GET", "/v1/models") == 503
    assert request_status(create_admin_app(ServerState()), "GET", "/admin/config") == 503


def mount(folder: Path, *keys: str) -> None:
    """What a kubelet does to a mounted Secret: the content is another one from one moment to the next."""
    version = folder / f"..{time.monotonic_ns()}"
    version.mkdir()
    (version / "key").write_text("\n".join(keys))
    (folder / "..new").symlink_to(version.name)
    (folder / "..new").rename(folder / "..data")
    if not (folder / "key").is_symlink():
        (folder / "key").symlink_to("..data/key")


def test_a_rotation_without_a_restart(run_engine: Any, tmp_path: Path) -> None:
    """The real client: two keys are valid while one takes the other's place."""
    clients, operators = tmp_path / "clients", tmp_path / "operators"
    for folder, key in ((clients, "old"), (operators, "admin-old")):
        folder.mkdir()
        mount(folder, key)
    with run_engine("--served-model-name", "m", "--api-keys", str(clients), "--admin-keys", str(operators)) as engine:
        old, new = (openai.OpenAI(base_url=f"{engine.url}/v1", api_key=key, max_retries=0) for key in ("old", "new"))
        assert answers(old)
        assert not answers(new)
        mount(clients, "new", "old")
        until(lambda: answers(new))
        assert answers(old)
        mount(clients, "new")
        until(lambda: not answers(old))
        assert answers(new)

        def admin(key: str) -> int:
            headers = {"authorization": f"Bearer {key}"}
            return httpx.get(f"{engine.admin_url}/admin/config", headers=headers).status_code

        assert (admin("admin-old"), admin("admin-new"), admin("new")) == (200, 401, 401)
        mount(operators, "admin-new")
        until(lambda: admin("admin-new") == 200)
        assert admin("admin-old") == 401
        (operators / "..data").unlink()
        until(lambda: admin("admin-new") == 401)


def answers(client: openai.OpenAI) -> bool:
    try:
        return bool(client.completions.create(model="m", prompt="Once", max_tokens=1).choices)
    except openai.AuthenticationError:
        return False


def until(true: Any) -> None:
    deadline = time.monotonic() + REREAD_WITHIN
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
