"""The engine's side of the process that renders chat templates."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from paternoster_engine.chat import frames
from paternoster_engine.chat.errors import ChatTemplateError, RendererLost

CPU_TIME = 1.0
"""Seconds of a processor for one rendering, and for compiling."""
WALL_TIME = 20.0
"""Seconds after which a process that computes nothing is killed as well."""
MEMORY = 512 * 2**20
"""Bytes of address space; an idle renderer has 30 MiB."""
ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "TZ")
"""What the process is given of the engine's environment, which may hold secrets."""


class Renderer:
    """Renders with one template, one conversation at a time; a process that ended is replaced at the next one."""

    def __init__(self, source: str | None, variables: Mapping[str, str]) -> None:
        """``source``: the model's template, None where it has none. ``variables`` are given to every rendering."""
        self._start = {"source": source, "variables": dict(variables), "memory": MEMORY, "cpu_time": CPU_TIME}
        self._fault = "the model file has no chat template" if source is None else None
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()

    def render(self, messages: Sequence[Mapping[str, Any]], most: int, /, **variables: Any) -> str:
        """Prompt text of ``messages``, at most ``most`` bytes; waits, so it is called in a thread.

        Raises :class:`ChatTemplateError`, and :class:`RendererLost` if the process was ended from outside.
        """
        with self._turn:
            self._ensure_process()
            answer = self._ask({"messages": messages, "most": most, "variables": variables})
        if "error" in answer:
            raise ChatTemplateError(answer["error"])
        text: str = answer["text"]
        return text

    def warm_up(self) -> None:
        """Start the process, so that the first conversation finds it; what the template lacks is told by those."""
        with self._turn, contextlib.suppress(ChatTemplateError, RendererLost):
            self._ensure_process()

    def close(self) -> None:
        """End the process; the next rendering would start another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _ensure_process(self) -> None:
        if self._fault is not None:
            raise ChatTemplateError(self._fault)
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        # Safe path: the folder that this was started in must not come before the installed packages.
        command = [sys.executable, "-P", "-m", "paternoster_engine.chat.worker"]
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        try:
            answer = self._ask(self._start)
        except ChatTemplateError as error:
            # It would not compile the next time either, and each try costs a second of a processor.
            self._fault = f"while it is compiled, {error}"
            raise ChatTemplateError(self._fault) from error
        if "error" in answer:
            self._fault = answer["error"]
            raise ChatTemplateError(self._fault)

    def _ask(self, request: Mapping[str, Any]) -> dict[str, str]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(WALL_TIME, process.kill)
        late.start()
        try:
            frames.write(process.stdin, request)
            answer: dict[str, str] = frames.read(process.stdout)
            return answer
        except (OSError, EOFError) as error:
            status = process.wait()
            if status in (-signal.SIGKILL, -signal.SIGTERM):
                raise RendererLost from error
            fault = (
                f"takes more than {CPU_TIME:g} s of a processor" if status == -signal.SIGPROF else "ends its process"
            )
            raise ChatTemplateError(f"the model's chat template {fault}: exit status {status}") from error
        finally:
            late.cancel()
