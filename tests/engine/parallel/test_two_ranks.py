"""A small model on two ranks, in two processes over gloo, against the same model on one."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.engine.parallel.tiny import VOCAB, build, inner, save_tiny

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.block_table import BlockTable
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.engine import Engine
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.runner.step_input import host_step

PROMPTS = [random.Random(seed).choices(range(VOCAB), k=length) for seed, length in enumerate((1, 9, 17, 30))]


@torch.inference_mode()
def logits(engine: Engine, scheduled: list[ScheduledRequest]) -> torch.Tensor:
    assert isinstance(engine.runner, ModelRunner)
    return engine.runner._forward(host_step(scheduled))


def answer(engine: Engine) -> list[list[int]]:
    """What each of PROMPTS is continued with, all submitted at once."""
    params = SamplingParams(max_tokens=14, temperature=0.0, ignore_eos=True)
    requests = [Request(RequestSpec(f"r{i}", list(prompt), params, seed=i)) for i, prompt in enumerate(PROMPTS)]
    for request in requests:
        engine.scheduler.add(request)
    while engine.scheduler.has_work:
        engine.step()
    assert {request.finish_reason for request in requests} == {FinishReason.LENGTH}
    engine.scheduler.check_integrity()
    return [request.output for request in requests]


Pair = tuple[Engine, Engine]


@pytest.fixture(scope="module", params=["tied", "untied", "ordered, Qwen3"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Engine on one rank and on two."""
    last = request.param == "ordered, Qwen3"
    architecture = "qwen3" if last else "llama"
    model = save_tiny(tmp_path_factory.mktemp("tiny"), architecture=architecture, tied=request.param == "tied")
    two = build(model, 2, batch_invariant=last)
    yield build(model, 1), two
    inner(two).close()


def test_a_token_that_is_nan_on_either_rank_corrupts_its_request_alone(tmp_path: Path) -> None:
    """Each rank has half of the embedding's rows, and of the logits. First: ``pair`` holds the process group later."""
    poisoned = (3, VOCAB - 1)
    clean = [prompt for prompt in PROMPTS if not {*prompt} & {*poisoned}]
    prompts = [*clean, [5, 6, poisoned[0], 7], [5, 6, poisoned[1], 7]]
    results = []
    for ranks, broken in ((1, ()), (2, poisoned)):
        engine = build(save_tiny(tmp_path, poisoned=broken), ranks)
        params = SamplingParams(
            max_tokens=8, temperature=0.0, ignore_eos=True, logit_bias=tuple((i, -100.0) for i in poisoned)
        )
        requests = [Request(RequestSpec(f"r{i}", list(prompt), params)) for i, prompt in enumerate(prompts)]
        engine.scheduler.add(*requests)
        while engine.scheduler.has_work:
            engine.step()
        results.append(requests)
        if ranks == 2:
            inner(engine).close()
    expected, got = results
    assert clean
    assert [request.output for request in got[: len(clean)]] == [request.output for request in expected[: len(clean)]]
    assert [request.corrupted for request in got] == [False] * len(clean) + [True, True]


def test_logits_are_those_of_one_rank(pair: Pair) -> None:
    """Prompts whole and in chunks, and single tokens, in one step after the other."""
    tables = [[1], [2, 3], [4, 5, 6], [7, 8, 9, 10]]
    requests = [
        Request(RequestSpec(f"r{i}", list(prompt), SamplingParams(max_tokens=9)), block_table=BlockTable(table))
        for i, (prompt, table) in enumerate(zip(PROMPTS, tables, strict=True))
    ]
    whole = [ScheduledRequest(request, 0, request.num_prompt, samples=True) for request in requests]
    first = [ScheduledRequest(request, 0, 6, samples=False) for request in requests[1:]]
    rest = [ScheduledRequest(request, 6, request.num_prompt - 6, samples=True) for request in requests[1:]]
    for request in requests:
        request.output = [5]
    more = [ScheduledRequest(request, request.num_prompt, 1, samples=True) for request in requests]
    for scheduled in (whole, first, rest, more):
        expected, got = (logits(engine, scheduled) for engine in pair)
        assert got.shape == (sum(item.samples for item in scheduled), VOCAB)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_blocks_are_copied_on_every_rank(pair: Pair) -> None:
    request = Request(RequestSpec("r", PROMPTS[1], SamplingParams(max_tokens=9)), block_table=BlockTable([1, 2]))
    first = [ScheduledRequest(request, 0, 8, samples=False)]
    last = [ScheduledRequest(request, 8, 1, samples=True)]
    two = pair[1]
    logits(two, first)
    expected = logits(two, last)
    inner(two)._copy([(1, 5)])
    request.block_table.block_ids = [5, 2]
    assert torch.equal(logits(two, last), expected)


def test_tokens_are_those_of_one_rank_also_when_blocks_are_swapped(pair: Pair) -> None:
    one, two = pair
    expected = answer(one)
    assert answer(two) == expected
    assert two.scheduler.counters.swapped_out_blocks > 0
    assert len({tuple(output) for output in expected}) == len(PROMPTS)
