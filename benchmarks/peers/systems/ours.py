"""``paternoster serve`` as it is installed beside this Python."""

import sys
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path

from paternoster_contract import paths
from peers.systems.server import RunningServer, free_port, server

KV_GIB = 1
"""As much as vLLM has here: the default does not hold all 64 requests at once."""


class Ours:
    name = "paternoster"
    precision = "bf16"
    starts_anew = False

    def describe(self) -> str:
        versions = f"paternoster {version('paternoster')}, torch {version('torch')}"
        return f"{versions}; 64 at once, prefix cache off, {KV_GIB} GiB of KV"

    def set_up(self) -> None:
        """Nothing: it is here."""

    def start(self, checkpoint: Path, threads: int, most: int, log: Path) -> AbstractContextManager[RunningServer]:
        port = free_port()
        command = Path(sys.executable).with_name("paternoster")
        flags = ["--model", checkpoint.as_uri(), "--served-model-name", "model", "--dtype", "bfloat16"]
        flags += ["--threads", str(threads), "--port", str(port), "--max-num-seqs", "64", "--no-prefix-cache"]
        flags += ["--kv-cache-memory", str(KV_GIB * 2**30)]
        return server([command, "serve", *flags], port, log, model="model", env={}, health=paths.READY)
