"""The limited process itself, which the kernel ends at its limits.

It reads requests from standard input, writes answers to standard output, and ends when the pipe closes. A timer ends a
request that never ends, also when the engine is gone.
"""

import resource
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from paternoster_engine.limited import frames

Answer = Callable[[Mapping[str, Any]], dict[str, Any]]


def serve_requests(prepare: Callable[[Any], Answer], refusal: type[Exception]) -> None:
    """Answer requests by the function that ``prepare`` returns; a ``refusal`` becomes the answer's ``error``."""
    # A key pressed in a terminal is for the engine, which finishes what runs.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    start = frames.read_frame(requests)
    limits = start["limits"]
    bounded = {resource.RLIMIT_AS: limits["memory"], resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    if limits["stack"] is not None:
        bounded[resource.RLIMIT_STACK] = limits["stack"]
    for limit, value in bounded.items():
        resource.setrlimit(limit, (value, value))

    def set_timer(seconds: float) -> None:
        # The default action of SIGPROF ends the process, also in the midst of one long operation.
        signal.setitimer(signal.ITIMER_PROF, seconds)

    set_timer(limits["start_time"] or limits["cpu_time"])
    try:
        answer = prepare(start["given"])
    except refusal as error:
        frames.write_frame(answers, {"error": str(error)})
        return
    set_timer(0)
    frames.write_frame(answers, {})
    while True:
        try:
            request = frames.read_frame(requests)
        except EOFError:
            return
        set_timer(limits["cpu_time"])
        try:
            result = answer(request)
        except refusal as error:
            result = {"error": str(error)}
        set_timer(0)
        frames.write_frame(answers, result)
