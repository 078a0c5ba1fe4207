"""The side of the process itself: the kernel ends it at its limits.

Standard input brings requests, standard output takes answers. When the pipe closes the process ends; what never ends is
ended by its timer, also when nobody is left to kill it.
"""

import resource
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from paternoster_engine.limited import frames

Answer = Callable[[Mapping[str, Any]], dict[str, Any]]


def serve(prepare: Callable[[Any], Answer], refusal: type[Exception]) -> None:
    """Answer requests by what ``prepare`` makes of what was given at the start; ``refusal`` becomes an error told."""
    # A key pressed in a terminal is for the engine, which lets what runs finish.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    start = frames.read(requests)
    limits = start["limits"]
    bounded = {resource.RLIMIT_AS: limits["memory"], resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    if limits["stack"] is not None:
        bounded[resource.RLIMIT_STACK] = limits["stack"]
    for limit, value in bounded.items():
        resource.setrlimit(limit, (value, value))

    def timer(seconds: float) -> None:
        # The default action of SIGPROF ends the process, also in the midst of one long operation.
        signal.setitimer(signal.ITIMER_PROF, seconds)

    timer(limits["start_time"] or limits["cpu_time"])
    try:
        answer = prepare(start["given"])
    except refusal as error:
        frames.write(answers, {"error": str(error)})
        return
    timer(0)
    frames.write(answers, {})
    while True:
        try:
            request = frames.read(requests)
        except EOFError:
            return
        timer(limits["cpu_time"])
        try:
            result = answer(request)
        except refusal as error:
            result = {"error": str(error)}
        timer(0)
        frames.write(answers, result)
