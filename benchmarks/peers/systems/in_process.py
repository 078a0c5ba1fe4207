"""A peer that is a library: a runner of ours drives it in its own environment, and reports when each token came."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from paternoster_load.results import BenchRequest, RequestEnd, RequestResult
from peers.peer import OnResult, PeerError
from peers.systems.server import process


@dataclass
class RunningLibrary:
    """Writes requests to the runner and reads what became of them; clocks of processes agree on Linux."""

    session: int
    log: Path
    requests: IO[str]
    answers: IO[str]

    def serve(self, requests: Sequence[BenchRequest], concurrency: int, on_result: OnResult) -> list[RequestResult]:
        """All requests in one message; raises :class:`PeerError` when the runner ends before the last answer."""
        wanted = [{"index": r.index, "prompt": r.prompt, "max_tokens": r.max_tokens} for r in requests]
        self.requests.write(json.dumps({"concurrency": concurrency, "requests": wanted}) + "\n")
        self.requests.flush()
        prompts = {request.index: request.prompt_tokens for request in requests}
        results: dict[int, RequestResult] = {}
        while len(results) < len(requests):
            answer = self.answer()
            result = result_of(answer, prompts[answer["index"]])
            results[result.index] = result
            on_result(result)
        return [results[request.index] for request in requests]

    def answer(self) -> dict[str, Any]:
        line = self.answers.readline()
        if not line:
            raise PeerError(f"the runner ended: {self.log}")
        return dict(json.loads(line))


def result_of(answer: dict[str, Any], prompt_tokens: int) -> RequestResult:
    """``{"index", "start", "times"}`` in the form of a server's answer."""
    start, times = answer["start"], answer["times"]
    result = RequestResult(answer["index"], start, prompt_tokens)
    result.output_tokens = len(times)
    if times:
        result.outcome = RequestEnd.COMPLETED
        result.ttft = times[0] - start
        result.itls = [later - earlier for earlier, later in pairwise(times)]
        result.latency = times[-1] - start
    else:
        result.error = "no token came"
    return result


@contextmanager
def library(command: Sequence[str | Path], log: Path, env: dict[str, str]) -> Iterator[RunningLibrary]:
    """Start the runner and wait until it is ready; raises :class:`PeerError`."""
    with process(command, log, env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        running = RunningLibrary(started.pid, log, started.stdin, started.stdout)
        if "ready" not in running.answer():
            raise PeerError(f"{command[0]}: said something else than that it is ready: {log}")
        yield running
