"""A pod of vLLM on this machine: it binds its port itself, and finds plugin and keys in folders of its own."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.local.unsupported import refused

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
"""As vLLM with the plugin listens: with SO_REUSEADDR alone, on a port that it gets by number."""
RUNTIME = {"type": "VLLM", "command": ["vllm", "serve"]}


async def test_a_foreign_engine_runs_with_the_plugin(
    fleet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "vllm"
    program.write_text(PROGRAM)
    program.chmod(0o700)
    monkeypatch.setattr(fleet, "_program", program)
    await fleet.apply(1, model={"source": "file:///m"}, engine={"runtime": RUNTIME})
    (pod,) = await fleet.until_ready(1)
    args, env = json.loads(fleet.log(pod.name).splitlines()[0])
    assert args[:2] == ["serve", "/m"]
    assert "--fd" not in args
    plugin, keys = Path(env["PYTHONPATH"]), Path(env["PATERNOSTER_VLLM_ADMIN_KEYS"])
    assert (plugin / "paternoster_vllm/middleware.py").is_file()
    assert (keys / "operator").read_text().strip()
    assert env["HOME"] != "/tmp" or Path.home() == Path("/tmp"), "the container's is not this user's"
    await fleet.cluster.close()
    assert not await asyncio.to_thread(plugin.exists)


def test_a_runtime_without_a_program_of_this_machine_is_refused(resource: Any) -> None:
    fleet: LLMDeployment = resource(model={"source": "file:///m"}, engine={"runtime": {"type": "VLLM", "image": "v:1"}})
    assert refused([fleet]) == [
        "ride: spec.engine.runtime.command: is unset: must name the program on this machine, which runs no images"
    ]
