"""The processes that render templates and compile grammars, passed from one server of a test process to the next.

A server starts one of each when a request first needs it and ends them when it ends. Hundreds of tests have a server of
their own with the default model's template and vocabulary: starting Python for each costs more than most tests do.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from typing import Any
from unittest import mock

from paternoster_engine.chat import renderer
from paternoster_engine.limited.process import LimitedProcess, ProcessLimits
from paternoster_engine.sampling.grammars import compiler

Idle = dict[tuple[str, ProcessLimits, bytes], list[LimitedProcess]]
"""Processes by their module, their limits and a hash of what they were given to begin with."""


class ReusedProcess:
    """A :class:`LimitedProcess`; one that has answered all it was asked is not ended by ``close`` but kept in ``idle``.

    What a request exceeded or ended, what was killed, and what refused its template or vocabulary is never used again.
    """

    def __init__(self, idle: Idle, module: str, limits: ProcessLimits) -> None:
        self._idle, self._module, self._limits = idle, module, limits
        self._key = (module, limits, b"")
        self._process: LimitedProcess | None = None
        self._answered = False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    def prepare_process(self, given: Any, wall_time: float) -> dict[str, Any]:
        digest = blake2b(json.dumps(given, sort_keys=True).encode(), digest_size=16).digest()
        self._key = (self._module, self._limits, digest)
        while idle := self._idle[self._key]:
            self._process = idle.pop()
            if self.alive:
                self._answered = True
                return {}
        self._process = LimitedProcess(self._module, self._limits)
        answer = self._process.prepare_process(given, wall_time)
        self._answered = "error" not in answer
        return answer

    def request_answer(self, request: Mapping[str, Any], wall_time: float) -> dict[str, Any]:
        assert self._process is not None
        self._answered = False
        answer = self._process.request_answer(request, wall_time)
        self._answered = True
        return answer

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self._answered and process.alive:
            self._idle[self._key].append(process)
        else:
            process.close()


@contextmanager
def idle_processes() -> Iterator[Idle]:
    """None at first; what is in it ends with the block."""
    idle: Idle = defaultdict(list)
    try:
        yield idle
    finally:
        for processes in idle.values():
            for process in processes:
                process.close()


@contextmanager
def reusing(idle: Idle) -> Iterator[None]:
    """While the block runs, servers of this process take their processes from ``idle``, and return them to it."""
    process = partial(ReusedProcess, idle)
    with (
        mock.patch.object(renderer, "LimitedProcess", process),
        mock.patch.object(compiler, "LimitedProcess", process),
    ):
        yield
