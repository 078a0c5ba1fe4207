"""llama.cpp's server on a GGUF file: bfloat16 weights, or the model file's own Q4_1."""

from contextlib import AbstractContextManager
from pathlib import Path

from harness.servers import free_port
from peers.systems import llama_cpp_build
from peers.systems.server import RunningServer, server
from peers.systems.weights import bfloat16_gguf, model_file

SLOT_TOKENS = 1024
"""Above the 768 tokens of the longest request, in the steps of 256 that the server rounds to."""


class LlamaCpp:
    """``precision``: bf16 or q4_1.

    It has as many slots as requests come at once, so each concurrency has a server of its own: with a KV cache to each
    slot, slots that are idle between busy ones split a step, as a micro-batch takes neighbouring slots only.
    """

    starts_anew = True

    def __init__(self, precision: str) -> None:
        self.name = "llama-cpp" if precision == "bf16" else f"llama-cpp-{precision}"
        self.precision = precision

    def describe(self) -> str:
        version = (
            f"llama.cpp b{llama_cpp_build.VERSION.partition('.')[0]}, {llama_cpp_build.COMPILERS['CMAKE_C_COMPILER']}"
        )
        return (
            f"{version}; a slot of {SLOT_TOKENS} tokens for each request at once, no flash attention, prompt cache off"
        )

    def set_up(self) -> None:
        llama_cpp_build.build()
        self._weights()

    def _weights(self) -> Path:
        return bfloat16_gguf(llama_cpp_build.converter()) if self.precision == "bf16" else model_file()

    def start(self, checkpoint: Path, threads: int, most: int, log: Path) -> AbstractContextManager[RunningServer]:
        """``checkpoint`` is not read: the same weights come as a GGUF file."""
        port = free_port()
        flags = ["--model", str(self._weights()), "--alias", "model", "--host", "127.0.0.1", "--port", str(port)]
        flags += ["--threads", str(threads), "--parallel", str(most), "--ctx-size", str(most * SLOT_TOKENS)]
        flags += ["--flash-attn", "off", "--no-cache-prompt", "--cache-ram", "0", "--offline"]
        env = {"OMP_NUM_THREADS": str(threads)}
        return server([llama_cpp_build.server_binary(), *flags], port, log, model="model", env=env)
