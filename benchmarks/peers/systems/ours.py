"""``paternoster serve`` as it is installed beside this Python."""

import sys
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path

from harness.servers import free_port
from paternoster_contract.http import paths
from peers.systems.server import RunningServer, server
from peers.systems.weights import model_file

KV_GIB = 1
"""Memory that vLLM has here, too: the default does not hold all 64 requests at once."""


class Ours:
    """``precision``: bf16 or q4_1, which is the model file as it is."""

    starts_anew = False

    def __init__(self, precision: str) -> None:
        self.name = "paternoster" if precision == "bf16" else f"paternoster-{precision}"
        self.precision = precision

    def describe(self) -> str:
        versions = f"paternoster {version('paternoster')}, torch {version('torch')}"
        return f"{versions}; 64 at once, tokens proposed as by default, prefix cache off, {KV_GIB} GiB of KV"

    def set_up(self) -> None:
        """Nothing: it is here."""

    def start(self, checkpoint: Path, threads: int, most: int, log: Path) -> AbstractContextManager[RunningServer]:
        port = free_port()
        command = Path(sys.executable).with_name("paternoster")
        weights = checkpoint if self.precision == "bf16" else model_file()
        flags = ["--model", weights.as_uri(), "--served-model-name", "model", "--dtype", "bfloat16"]
        flags += ["--threads", str(threads), "--port", str(port), "--max-num-seqs", "64", "--no-prefix-cache"]
        flags += ["--kv-cache-memory", str(KV_GIB * 2**30)]
        return server([command, "serve", *flags], port, log, model="model", env={}, health=paths.READY)
