"""A pod of vLLM on this machine: it binds its port itself, and finds plugin and keys in folders of its own."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.operator.local.conftest import KEY
from tests.sources.loopback_hub import LoopbackHub
from tests.sources.model_files import model_files

from paternoster_contract.labels import MODELS_ENV
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.local.pod import expand_variables
from paternoster_operator.local.unsupported import list_refused
from paternoster_operator.pods.reading import read_pod

PROGRAM = f"""#!{sys.executable}
import http.server, json, os, sys
names = ("PYTHONPATH", "PATERNOSTER_VLLM_ADMIN_KEYS", "HOME")
print(json.dumps([sys.argv[1:], {{name: os.environ.get(name) for name in names}}]), flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/paternoster/health" else 404)
        self.end_headers()
address = (sys.argv[sys.argv.index("--host") + 1], int(sys.argv[sys.argv.index("--port") + 1]))
http.server.ThreadingHTTPServer(address, Handler).serve_forever()
"""
"""Program that listens like vLLM with the plugin: with SO_REUSEADDR alone, on a port that it gets by number."""
RUNTIME = {"type": "VLLM", "command": ["vllm", "serve"]}


def replace_program(fleet: Any, monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    """Let the engines of ``fleet`` run ``text``, a program that is written into ``folder``."""
    program = folder / "engine"
    program.write_text(text)
    program.chmod(0o700)
    monkeypatch.setattr(fleet, "_program", program)


def read_launch(fleet: Any, pod: str) -> list[Any]:
    """Arguments and environment with which the program of ``pod`` ran; a fetch before it wrote lines of its own."""
    launch: list[Any] = next(json.loads(line) for line in fleet.log(pod).splitlines() if line.startswith("[["))
    return launch


async def test_a_foreign_engine_runs_with_the_plugin(
    fleet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_program(fleet, monkeypatch, tmp_path, PROGRAM)
    runtime = {**RUNTIME, "args": ["--seed=$(SEED)"], "env": [{"name": "SEED", "value": "5"}]}
    await fleet.apply(1, model={"source": "file:///m"}, engine={"runtime": runtime})
    (pod,) = await fleet.until_ready(1)
    args, env = read_launch(fleet, pod.name)
    assert args[:2] == ["serve", "/m"]
    assert "--seed=5" in args, "as Kubernetes replaces it"
    assert "--fd" not in args
    plugin, keys = Path(env["PYTHONPATH"]), Path(env["PATERNOSTER_VLLM_ADMIN_KEYS"])
    assert (plugin / "paternoster_vllm/middleware.py").is_file()
    assert (keys / "operator").read_text().strip()
    assert env["HOME"] != "/tmp" or Path.home() == Path("/tmp"), "the container's is not this user's"
    await fleet.cluster.close()
    assert not await asyncio.to_thread(plugin.exists)


async def test_variables_in_command_arguments_and_environment_are_replaced(
    fleet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_program(
        fleet, monkeypatch, tmp_path, PROGRAM.replace("/paternoster/health", "/health").replace('"HOME"', '"PORT"')
    )
    env = [{"name": "PORT", "value": "$(PATERNOSTER_PORT)"}]
    args = ["--host", "$(PATERNOSTER_HOST)", "--port", "$(PATERNOSTER_PORT)", "-m=$(PATERNOSTER_MODEL)", "$(OTHER)"]
    runtime = {"type": "OpenAI", "command": ["server"], "args": args, "env": env}
    await fleet.apply(1, model={"source": "file:///m"}, engine={"runtime": runtime})
    (pod,) = await fleet.until_ready(1)
    (document,) = fleet.cluster.list_pods(KEY)
    words, seen = read_launch(fleet, pod.name)
    port = seen["PORT"]
    assert words == ["serve", "--host", "127.0.0.1", "--port", port, "-m=/m", "$(OTHER)"]
    assert read_pod(document).url == f"http://127.0.0.1:{port}"
    assert seen["PYTHONPATH"] is None or "plugin" not in seen["PYTHONPATH"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$(A)-$(B)", "1-2"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(C) $A $(", "$(C) $A $("),
    ],
)
def test_variables_are_replaced_as_in_a_container(text: str, found: str) -> None:
    assert expand_variables(text, {"A": "1", "B": "2"}) == found


@pytest.mark.parametrize(
    ("args", "env", "faults"),
    [
        (["--port=8000"], [], 1),
        (["--port=$(PATERNOSTER_PORT)"], [], 0),
        ([], [{"name": "PORT", "value": "$(PATERNOSTER_PORT)"}], 0),
    ],
)
def test_a_server_whose_port_is_its_own_choice_is_refused(
    resource: Any, args: list[str], env: list[dict[str, str]], faults: int
) -> None:
    runtime = {"type": "OpenAI", "command": ["server"], "args": args, "env": env}
    fleet: LLMDeployment = resource(model={"source": "file:///m"}, engine={"runtime": runtime})
    fault = (
        "ride: spec.engine.runtime.args: must have $(PATERNOSTER_PORT): this machine's engines have ports of its choice"
    )
    assert list_refused([fleet]) == [fault] * faults


def test_a_runtime_without_a_program_of_this_machine_is_refused(resource: Any) -> None:
    fleet: LLMDeployment = resource(model={"source": "file:///m"}, engine={"runtime": {"type": "VLLM", "image": "v:1"}})
    assert list_refused([fleet]) == [
        "ride: spec.engine.runtime.command: is unset: must name the program on this machine, which runs no images"
    ]


async def test_a_fetched_model_is_a_folder_to_a_foreign_engine(
    fleet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_program(fleet, monkeypatch, tmp_path, PROGRAM)
    monkeypatch.setenv(MODELS_ENV, str(tmp_path / "models"))
    files = model_files()
    with LoopbackHub().running() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.add("org/tiny", files)
        await fleet.apply(1, model={"source": "hf://org/tiny"}, engine={"runtime": RUNTIME})
        (pod,) = await fleet.until_ready(1)
    args, _env = read_launch(fleet, pod.name)
    link = Path(args[1])
    assert await asyncio.to_thread((link / "model.safetensors").read_bytes) == files["model.safetensors"]
    assert (await asyncio.to_thread(link.resolve)).is_relative_to(tmp_path / "models")
    await fleet.cluster.close()
    assert not await asyncio.to_thread(link.is_symlink)
    assert list((tmp_path / "models").rglob("model.safetensors")) != [], "the cache stays"


async def test_a_fetched_file_is_in_the_environment_of_a_foreign_engine(
    fleet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_program(
        fleet,
        monkeypatch,
        tmp_path,
        PROGRAM.replace("/paternoster/health", "/health").replace('"HOME"', '"PATERNOSTER_MODEL"'),
    )
    monkeypatch.setenv(MODELS_ENV, str(tmp_path / "models"))
    args = ["--host", "$(PATERNOSTER_HOST)", "--port", "$(PATERNOSTER_PORT)", "-m", "$(PATERNOSTER_MODEL)"]
    runtime = {"type": "OpenAI", "command": ["server"], "args": args, "upstreamModel": "$(PATERNOSTER_MODEL)"}
    with LoopbackHub().running() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.add("org/quantized", {"tiny-Q8_0.gguf": b"GGUF" * 500})
        await fleet.apply(1, model={"source": "hf://org/quantized/tiny-Q8_0.gguf"}, engine={"runtime": runtime})
        (pod,) = await fleet.until_ready(1)
    words, env = read_launch(fleet, pod.name)
    (document,) = fleet.cluster.list_pods(KEY)
    assert words[-1] == env["PATERNOSTER_MODEL"] == read_pod(document).upstream_model
    assert Path(words[-1]).name == "tiny-Q8_0.gguf"
    assert await asyncio.to_thread(Path(words[-1]).read_bytes) == b"GGUF" * 500
