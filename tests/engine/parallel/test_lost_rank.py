"""A rank that is killed."""

import os
import signal
from pathlib import Path

from tests.engine.parallel.tiny import build, inner, save_tiny

from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams


def test_requests_end_with_an_error_and_the_engine_tells_why(tmp_path: Path) -> None:
    engine = build(save_tiny(tmp_path), 2)
    try:
        assert engine.fault is None
        (process,) = inner(engine)._workers._processes
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        request = Request(RequestSpec("r", [1, 2, 3], SamplingParams(max_tokens=3)))
        engine.scheduler.add(request)
        while engine.scheduler.has_work:
            engine.step()
        assert request.finish_reason is FinishReason.ERROR
        assert engine.fault is not None
    finally:
        inner(engine).close()
