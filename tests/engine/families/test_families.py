"""Each family's logits and tokens are those of transformers, however its requests are scheduled."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.engine.families import tiny_families as tiny

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.block_table import BlockTable
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.engine import Engine
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.step_input import host_step

pytestmark = pytest.mark.timeout(600)
CheckpointOf = Callable[[str, str], Checkpoint]
POSITIONS = 200


def build(checkpoint: Checkpoint, *, invariant: bool = False) -> Decoder:
    return Decoder(checkpoint.config, checkpoint.get_tensor, torch.float32, tiny.CPU, invariant=invariant)


@torch.inference_mode()
def logits(model: Decoder, prompt: list[int], cuts: tuple[int, ...]) -> torch.Tensor:
    """After each chunk of ``prompt``, which ends at a cut."""
    num_groups = len(model.config.layer_groups)
    pool = KVPoolShape((-(-len(prompt) // tiny.BLOCK_SIZE) + 1) * num_groups, tiny.BLOCK_SIZE, 0)
    cache = allocate_kv_cache(pool, model.config, torch.float32, tiny.CPU)
    request = Request(
        RequestSpec("r", prompt, SamplingParams(max_tokens=1)),
        block_table=BlockTable(list(range(1, pool.num_blocks + 1))),
    )
    rows = []
    for start, stop in zip((0, *cuts), (*cuts, len(prompt)), strict=True):
        scheduled = [ScheduledRequest(request, start, stop - start, samples=stop == len(prompt))]
        step = host_step(scheduled, num_groups).on_device(cache[0], model.plan_attention)
        rows.append(model.forward(step, cache))
    return torch.cat(rows)


@pytest.mark.parametrize(
    ("form", "invariant"), [("safetensors", False), ("safetensors", True), ("gguf", False)], ids=str
)
def test_logits(
    name: str, form: str, invariant: bool, checkpoint_of: CheckpointOf, theirs: Callable[[str], Any]
) -> None:
    """Logits of 200 tokens at once, and in chunks of many tokens, one, and many."""
    if form == "gguf" and name not in tiny.GGUF:
        pytest.skip("such a file does not say all of this model")
    model = build(checkpoint_of(name, form), invariant=invariant)
    prompt = torch.randint(tiny.VOCAB, (POSITIONS,), generator=torch.Generator().manual_seed(2)).tolist()
    with torch.inference_mode():
        expected = theirs(name)(torch.tensor([prompt])).logits[0, -1:]
    for cuts in ((), (130, 131), (199,)):
        torch.testing.assert_close(logits(model, prompt, cuts), expected, rtol=1e-3, atol=1e-3)


def answer(engine: Engine, prompts: list[list[int]], max_tokens: int = 70) -> list[list[int]]:
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    requests = [Request(RequestSpec(f"r{i}", list(prompt), params)) for i, prompt in enumerate(prompts)]
    for request in requests:
        engine.scheduler.add(request)
    while engine.scheduler.has_work:
        engine.step()
    engine.scheduler.check_integrity()
    return [request.output for request in requests]


SCHEDULES: dict[str, dict[str, Any]] = {
    "alone": {},
    "batched with 16": {},
    "chunks of a block less one": {"max_batched_tokens": 7, "max_num_seqs": 3},
    "chunks of a block": {"max_batched_tokens": 8, "max_num_seqs": 3},
    "chunks of a block and one": {"max_batched_tokens": 9, "max_num_seqs": 3},
    "preempted every third step": {"force_preempt_every": 3},
    "warm prefix cache": {"prefix_cache": True},
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tokens(
    name: str,
    schedule: str,
    checkpoint_of: CheckpointOf,
    greedy: Callable[[str], list[int]],
    prompts: list[list[int]],
) -> None:
    """Greedy, up to position 100; of that, 60 more tokens are of the prompt where the schedule is about prompts."""
    engine = tiny.engine(build(checkpoint_of(name, "safetensors")), **SCHEDULES[schedule])
    if "chunks" in schedule:
        greedy_tokens = greedy(name)
        outputs = answer(engine, [prompts[0] + greedy_tokens[:60], prompts[1]], len(greedy_tokens) - 60)
        assert outputs[0] == greedy_tokens[60:]
        return
    chosen_prompts = prompts if schedule == "batched with 16" else prompts[:1]
    outputs = answer(engine, chosen_prompts)
    assert outputs[0] == greedy(name)
    if schedule == "warm prefix cache":
        cached = engine.scheduler.counters.cached_prompt_tokens
        assert answer(engine, chosen_prompts, 20) == [output[:20] for output in outputs]
        assert engine.scheduler.counters.cached_prompt_tokens > cached
    if schedule == "preempted every third step":
        assert engine.scheduler.counters.preemptions > 0
    assert len(set(outputs[0])) > 3, "a model that repeats itself would hide much"


def test_a_token_that_is_nan_corrupts_its_request_alone(name: str, checkpoint_of: CheckpointOf) -> None:
    """Whatever the layers are: windows, caps, sinks and experts let NaN through to the requests that see it alone."""
    generator = torch.Generator().manual_seed(4)
    prompts = [torch.randint(1, tiny.VOCAB, (length,), generator=generator).tolist() for length in (5, 30, 12, 33)]
    poisoned = [[*prompts[1][:9], 0, *prompts[1][10:20]], [*prompts[2], 0]]
    model = build(checkpoint_of(name, "safetensors"))
    table, request_lists = model._embedding.weight.clone(), []
    params = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True, logit_bias=((0, -100.0),))
    for broken in (False, True):
        rows = table.clone()
        if broken:
            rows[0] = float("nan")
        model._embedding.weight = rows
        engine = tiny.engine(model, max_batched_tokens=17)
        requests = [
            Request(RequestSpec(f"r{i}", list(prompt), params)) for i, prompt in enumerate([*poisoned, *prompts])
        ]
        engine.scheduler.add(*requests)
        while engine.scheduler.has_work:
            engine.step()
            engine.scheduler.check_integrity()
        request_lists.append(requests)
    model._embedding.weight = table
    expected, got = request_lists
    assert [request.corrupted for request in got] == [True] * 2 + [False] * 4
    assert [request.output for request in got[2:]] == [request.output for request in expected[2:]]
