"""Models whose layers see windows: old blocks are let go, and what is answered does not depend on when."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.engine.families import tiny_families as tiny

from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.engine import Engine
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint
from paternoster_engine.model.decoder import Decoder

pytestmark = pytest.mark.timeout(600)
NAMES = ("mistral", "gemma2", "gemma3_text", "gpt_oss")
PROMPT, POSITIONS = 30, 100
CheckpointOf = Callable[[str, str], Checkpoint]


@pytest.fixture(params=NAMES)
def windowed(request: pytest.FixtureRequest, checkpoint_of: CheckpointOf) -> tuple[str, Decoder]:
    checkpoint = checkpoint_of(request.param, "safetensors")
    return request.param, Decoder(checkpoint.config, checkpoint.get_tensor, torch.float32, tiny.CPU)


def run_requests(engine: Engine, prompts: list[list[int]], max_tokens: int = POSITIONS - PROMPT) -> list[Request]:
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    requests = [Request(RequestSpec(f"r{i}", list(prompt), params)) for i, prompt in enumerate(prompts)]
    for request in requests:
        engine.scheduler.add(request)
    return requests


def run(engine: Engine) -> None:
    while engine.scheduler.has_work:
        engine.step()
        engine.scheduler.check_integrity()
    assert engine.scheduler.pool.num_used == 0


SCHEDULES: dict[str, dict[str, Any]] = {
    "chunks of less than a window": {"max_batched_tokens": 19},
    "chunks of a window": {"max_batched_tokens": 20},
    "chunks of more than a window": {"max_batched_tokens": 21},
    "swapped every third step": {"force_preempt_every": 3, "preemption": "swap", "host_blocks": 200},
    "recomputed every third step": {"force_preempt_every": 3, "prefix_cache": True},
    "reserved in full": {"admission": "no-evict", "prefix_cache": True},
    "a pool for two": {"admission": "no-evict", "blocks": 0},
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tokens(
    windowed: tuple[str, Decoder], schedule: str, greedy: Callable[[str], list[int]], prompts: list[list[int]]
) -> None:
    """Greedy, up to position 100, which is several windows."""
    name, model = windowed
    settings = dict(SCHEDULES[schedule])
    if settings.get("blocks") == 0:
        settings["blocks"] = 2 * tiny.engine(model).scheduler.kv.groups.count_sequence_blocks(POSITIONS)
    engine = tiny.engine(model, **settings)
    requests = run_requests(engine, prompts[:3])
    run(engine)
    assert requests[0].output == greedy(name)
    if "every third step" in schedule:
        assert engine.scheduler.counters.preemptions > 0
    if "swapped" in schedule:
        assert engine.scheduler.counters.swapped_in_blocks > 0


@pytest.mark.parametrize("name", NAMES)
def test_scales_of_int8_go_with_the_blocks(name: str, checkpoint_of: CheckpointOf, prompts: list[list[int]]) -> None:
    """Scales of each group go to the host and back, out of the prefix cache, and through steps of other sizes."""
    checkpoint = checkpoint_of(name, "safetensors")
    # Else torch's float32 sums differ in their last bit by the rows of a step, and int8 rounds that to a whole step.
    model = Decoder(checkpoint.config, checkpoint.get_tensor, torch.float32, tiny.CPU, invariant=True)
    outputs = []
    for schedule in ("chunks of a window", "swapped every third step", "recomputed every third step"):
        engine = tiny.engine(model, kv_dtype=torch.int8, **SCHEDULES[schedule])
        (requests,) = run_requests(engine, prompts[:1], 30)
        run(engine)
        outputs.append(requests.output)
    assert outputs == outputs[:1] * 3


def test_the_prefix_cache_gives_what_windows_need(
    windowed: tuple[str, Decoder], greedy: Callable[[str], list[int]], prompts: list[list[int]]
) -> None:
    """Prompt and answer, whose early blocks were let go, give the same again, and while they run."""
    name, model = windowed
    engine = tiny.engine(model, prefix_cache=True)
    (first,) = run_requests(engine, prompts[:1])
    run(engine)
    (again,) = run_requests(engine, [prompts[0] + first.output[:60]], POSITIONS - PROMPT - 60)
    run(engine)
    assert first.output == greedy(name)
    assert again.output == first.output[60:]
    assert again.num_cached == (len(prompts[0]) + 59) // tiny.BLOCK_SIZE * tiny.BLOCK_SIZE
    assert again.num_computed > again.num_cached


@pytest.mark.parametrize("delay", [0, 1, 60])
def test_forks(
    windowed: tuple[str, Decoder], delay: int, greedy: Callable[[str], list[int]], prompts: list[list[int]]
) -> None:
    """n = 4: three more go on from the first one's prompt, also when that one is windows ahead."""
    name, model = windowed
    engine = tiny.engine(model)
    (first,) = run_requests(engine, prompts[:1])
    for _ in range(delay):
        engine.step()
    params = first.params
    others = [Request(RequestSpec(f"other {i}", list(prompts[0]), params), prefix_donor=first) for i in range(3)]
    engine.scheduler.add(*others)
    run(engine)
    assert [request.output for request in (first, *others)] == [greedy(name)] * 4
    assert all((other.num_cached == len(prompts[0]) - 1) == (delay < 60) for other in others)


def test_a_long_sequence_holds_no_more_than_windows_and_a_chunk(
    windowed: tuple[str, Decoder], prompts: list[list[int]]
) -> None:
    _, model = windowed
    chunk = 16
    engine = tiny.engine(model, max_batched_tokens=chunk)
    (request,) = run_requests(engine, [(prompts[0] * 7)[:150]], 40)
    windows = model.config.kv_windows
    while engine.scheduler.has_work:
        engine.step()
        for group, window in enumerate(windows):
            held = sum(block != 0 for block in request.block_table.block_ids[group :: len(windows)])
            if window is not None:
                size = tiny.BLOCK_SIZE
                assert held <= -(-(window - 1) // size) + 1 + -(-chunk // size)
                assert request.prefilling or held <= -(-(window - 1) // size) + 1
    assert len(request.output) == 40


def test_more_long_sequences_fit_in_the_same_memory(windowed: tuple[str, Decoder], prompts: list[list[int]]) -> None:
    """Against a scheduler without the windows: at least half as many more run at once."""
    _, model = windowed
    prompt = (prompts[0] * 5)[:140]
    ran = []
    for windows in (model.config.kv_windows, (None,) * len(model.config.kv_windows)):
        engine = tiny.engine(model, blocks=40 * len(windows), windows=windows, max_batched_tokens=16)
        run_requests(engine, [[i, *prompt] for i in range(6)], 20)
        most = 0
        while engine.scheduler.has_work:
            engine.step()
            most = max(most, len(engine.scheduler.running))
        ran.append(most)
    assert ran[0] >= 1.5 * ran[1], ran
