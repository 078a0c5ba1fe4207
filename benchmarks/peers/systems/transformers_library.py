"""Hugging Face transformers: ``generate`` on static batches, and its continuous batching."""

from contextlib import AbstractContextManager
from pathlib import Path

from peers.systems.environment import Environment
from peers.systems.in_process import RunningLibrary, library

ENVIRONMENT = Environment("transformers")


class Transformers:
    """``mode``: static or continuous."""

    precision = "bf16"
    starts_anew = False

    def __init__(self, mode: str) -> None:
        self.name = f"transformers-{mode}"
        self._mode = mode

    def describe(self) -> str:
        versions = f"transformers {ENVIRONMENT.version('transformers')}, torch {ENVIRONMENT.version('torch')}"
        what = {
            "static": "generate on batches of as many requests as come at once, in process",
            "continuous": "continuous batching, 256 pages of 256 tokens, 1,024 tokens a step, in process",
        }
        return f"{versions}; {what[self._mode]}"

    def set_up(self) -> None:
        ENVIRONMENT.set_up()

    def start(self, checkpoint: Path, threads: int, most: int, log: Path) -> AbstractContextManager[RunningLibrary]:
        runner = Path(__file__).with_name("transformers_runner.py")
        env = {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        command: list[str | Path] = [ENVIRONMENT.python, runner, self._mode, checkpoint, str(threads)]
        return library(command, log, env)
