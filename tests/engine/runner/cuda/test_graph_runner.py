"""The graph runner gives the tokens of the plain runner, whatever comes, goes, grows or is preempted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.core.batch import Batch, ScheduledRequest, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.matching import SamplerRow
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.runner.cuda.decode_slots import UnknownToken
from paternoster_engine.runner.cuda.graph_runner import GraphRunner
from paternoster_engine.runner.kv_pool import HostKVCache, KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.runner.protocol import Runner
from paternoster_engine.sampling.device_sampler import DeviceSampler
from paternoster_engine.sampling.sampler import Sampler

CPU = torch.device("cpu")
BLOCK_SIZE = 4
CAPACITY = 6
MODEL_LEN = 60


def config(num_blocks: int) -> SchedulerConfig:
    return SchedulerConfig(
        max_num_seqs=CAPACITY, max_batched_tokens=64, max_model_len=MODEL_LEN, block_size=BLOCK_SIZE,
        num_blocks=num_blocks,
    )  # fmt: skip


def cache_of(model: Decoder, blocks: int, block_size: int = BLOCK_SIZE) -> tuple[torch.Tensor, ...]:
    config = model.config
    shape = KVPoolShape.fit_memory(
        config,
        block_size,
        torch.float32,
        blocks * 8 * block_size * config.num_layers * config.num_kv_heads * config.head_dim,
    )
    return allocate_kv_cache(shape, config, torch.float32, CPU)


class Counting(ModelRunner):
    """The plain runner, counting its steps."""

    steps = 0

    def execute(self, batch: Batch) -> StepResult:
        self.steps += 1
        return super().execute(batch)


def graphs(
    model: Decoder, cache: tuple[torch.Tensor, ...], model_len: int = MODEL_LEN, host: HostKVCache | None = None
) -> tuple[GraphRunner, Counting]:
    eager = Counting(model, cache, DeviceSampler(CPU), host)
    return GraphRunner(eager, model, cache, CAPACITY, model_len), eager


def drive(runner: Runner, scheduler: Scheduler, requests: list[Request], joins: list[int]) -> None:
    """Run all ``requests``; the i-th joins at step ``joins[i]``."""
    engine, step = Engine(scheduler, runner), 0
    while scheduler.has_work or step <= max(joins):
        for request, when in zip(requests, joins, strict=True):
            if when == step:
                scheduler.add(request)
        engine.step()
        step += 1
    scheduler.check_integrity()


PARAMS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.7, 1.5]),
        "top_k": st.sampled_from([0, 0, 5]),
        "top_p": st.sampled_from([1.0, 1.0, 0.8]),
        "min_p": st.sampled_from([0.0, 0.0, 0.1]),
        "max_tokens": st.integers(1, 30),
    },
    optional={
        "presence_penalty": st.just(0.8),
        "repetition_penalty": st.just(1.3),
        "logit_bias": st.just(((5, 4.0), (96, -100.0))),
        "min_tokens": st.integers(1, 4),
        "logprobs": st.integers(0, 2),
    },
)
REQUEST = st.tuples(st.lists(st.integers(0, 96), min_size=1, max_size=25), PARAMS, st.integers(0, 2**64 - 1))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(REQUEST, min_size=1, max_size=9),
    st.data(),
    st.integers(15, 60),
    st.sampled_from(["recompute", "swap"]),
    st.booleans(),
    st.booleans(),
)
def test_same_tokens_as_the_plain_runner(
    tiny: Decoder,
    specs: list[Any],
    data: st.DataObject,
    blocks: int,
    preemption: str,
    prefix_cache: bool,
    overlap: bool,
) -> None:
    joins = data.draw(st.lists(st.integers(0, 30), min_size=len(specs), max_size=len(specs)))
    host_blocks = 40 if preemption == "swap" else 0
    plain_config = SchedulerConfig(
        max_num_seqs=CAPACITY,
        max_batched_tokens=8,
        max_model_len=MODEL_LEN,
        block_size=BLOCK_SIZE,
        num_blocks=blocks,
        prefix_cache=prefix_cache,
        preemption=preemption,
        host_blocks=host_blocks,
    )
    results = []
    for config in (plain_config, plain_config.replace(overlap=overlap and not host_blocks)):
        captured = len(results) == 1
        cache = cache_of(tiny, blocks)
        host = HostKVCache(host_blocks, cache) if host_blocks else None
        runner: Runner
        if captured:
            runner, _ = graphs(tiny, cache, host=host)
        else:
            runner = ModelRunner(tiny, cache, Sampler(tiny.config.vocab_size, CPU), host)
        scheduler = Scheduler(config)
        requests = [
            Request(
                RequestSpec(
                    f"r{i}", list(prompt), SamplingParams(ignore_eos=True, **params), seed=seed, eos_token_ids=(2,)
                )
            )
            for i, (prompt, params, seed) in enumerate(specs)
        ]
        drive(runner, scheduler, requests, joins)
        results.append([(request.output, [one.token for one in request.logprobs]) for request in requests])
    assert results[0] == results[1]


def plain(*prompts: list[int], **params: Any) -> list[Request]:
    chosen = SamplingParams(**{"max_tokens": 12, "ignore_eos": True, **params})
    return [Request(RequestSpec(f"r{i}", prompt, chosen, seed=i)) for i, prompt in enumerate(prompts)]


@pytest.mark.parametrize("overlap", [False, True])
def test_groups_of_layers_have_tables_of_their_own(windowed: Decoder, overlap: bool) -> None:
    """Sequences of several windows, more than the pool holds at once."""
    prompts = [[7, 3, i] * (1 + 3 * i) for i in range(5)]
    results = []
    for captured in (False, True):
        runner: Runner
        cache = cache_of(windowed, 40)
        if captured:
            runner, eager = graphs(windowed, cache)
        else:
            runner = ModelRunner(windowed, cache, Sampler(windowed.config.vocab_size, CPU))
        windows = windowed.config.kv_windows
        scheduler = Scheduler(config(34).replace(windows=windows, overlap=overlap and captured, max_batched_tokens=8))
        requests = plain(*prompts, max_tokens=20, temperature=0.8)
        drive(runner, scheduler, requests, [0, 0, 2, 9, 20])
        results.append([request.output for request in requests])
        assert not any(layer[0].any() for layer in cache), "the null block is written to"
        if captured:
            assert eager.steps < 60
    assert results[0] == results[1]


def test_decodes_do_not_use_the_plain_runner(tiny: Decoder) -> None:
    cache = cache_of(tiny, 40)
    runner, eager = graphs(tiny, cache)
    drive(
        runner,
        Scheduler(config(40)),
        plain([1, 2], [3]),
        [0, 0],
    )
    assert eager.steps == 1


@pytest.mark.parametrize("params", [{"logprobs": 1}, {"frequency_penalty": 0.5}, {"min_tokens": 12}], ids=str)
def test_what_graphs_do_not_do_goes_to_the_plain_runner(tiny: Decoder, params: dict[str, Any]) -> None:
    runner, eager = graphs(tiny, cache_of(tiny, 40))
    drive(
        runner,
        Scheduler(config(40)),
        plain([1, 2], **params),
        [0],
    )
    assert eager.steps == 12


class EvenTokens:
    """Only these may come next, but where ``resting`` outputs are free."""

    fault: str | None = None
    seconds = 0.0
    max_proposed = 16

    def __init__(self, resting: range = range(0)) -> None:
        self._resting = resting

    def allowed_mask(self, row: SamplerRow) -> bytes:
        return b"" if self.is_unconstrained(row) else b"\x55" * 13

    def is_unconstrained(self, row: SamplerRow) -> bool:
        return len(row.output) in self._resting

    def forced_tokens(self, row: SamplerRow) -> Sequence[int]:
        return ()

    def count_accepted(self, row: SamplerRow, tokens: Sequence[int]) -> int:
        return 0


def test_what_has_a_grammar_goes_to_the_plain_runner(tiny: Decoder) -> None:
    runner, eager = graphs(tiny, cache_of(tiny, 40))
    requests = plain([1, 2], temperature=1.0)
    requests[0].matcher = EvenTokens()
    drive(runner, Scheduler(config(40)), requests, [0])
    assert eager.steps == 12
    assert not any(token % 2 for token in requests[0].output)
    free = plain([1, 2], temperature=1.0)
    drive(graphs(tiny, cache_of(tiny, 40))[0], Scheduler(config(40)), free, [0])
    assert any(token % 2 for token in free[0].output), "else nothing was held to it"


@pytest.mark.parametrize("overlap", [False, True])
def test_while_a_grammar_rests_graphs_compute_its_steps(tiny: Decoder, overlap: bool) -> None:
    scheduled = config(40).replace(overlap=overlap)
    outputs = []
    for captured in (True, False):
        requests = plain([1, 2], [3], temperature=1.0)
        requests[0].matcher = EvenTokens(range(3, 9))
        runner, eager = graphs(tiny, cache_of(tiny, 40))
        drive(runner if captured else eager, Scheduler(scheduled), requests, [0, 0])
        assert not captured or eager.steps == 12 - 6
        outputs.append([request.output for request in requests])
    assert outputs[0] == outputs[1]
    odd = [place for place, token in enumerate(outputs[0][0]) if token % 2]
    assert odd
    assert set(odd) <= set(range(3, 9))


def test_steps_follow_each_other_without_the_host(tiny: Decoder) -> None:
    """Each is submitted before the tokens of the one before are read; the last ones when a request has left."""
    whole = plain([5, 6, 7], [8, 9], [10], temperature=0.9)
    runner, _ = graphs(tiny, cache_of(tiny, 40))
    drive(
        runner,
        Scheduler(config(40)),
        whole,
        [0, 0, 0],
    )

    runner, _ = graphs(tiny, cache_of(tiny, 40))
    again = plain([5, 6, 7], [8, 9], [10], temperature=0.9)
    scheduler = Scheduler(config(40))
    for request in again:
        scheduler.add(request)
    Engine(scheduler, runner).step()
    for number, request in enumerate(again):
        request.block_table.block_ids = list(range(1 + 5 * number, 6 + 5 * number))
    # The first step's blocks are others: what it wrote is computed anew, in these.
    prompts = tuple(ScheduledRequest(request, 0, request.num_prompt, samples=True) for request in again)
    runner.submit(Batch(1, prompts)).result()
    pending = []
    for step in range(8):
        running = again if step < 5 else [again[2], again[0]]
        items = tuple(ScheduledRequest(r, r.num_prompt + step, 1, samples=True) for r in running)
        pending.append((running, runner.submit(Batch(2 + step, items))))
    for running, launched in pending:
        for request, token in zip(running, launched.result().tokens, strict=True):
            request.output.append(token)
        assert launched.result() == launched.result()
    assert [request.output for request in again] == [
        request.output[:length] for request, length in zip(whole, (9, 6, 9), strict=True)
    ]


def test_which_steps_may_follow_at_once(tiny: Decoder) -> None:
    runner, _ = graphs(tiny, cache_of(tiny, 40))
    (request,) = plain([1, 2, 3])
    request.block_table.block_ids = [1, 2]

    def batch(start: int, tokens: int = 1, **changes: Any) -> Batch:
        return replace(Batch(1, (ScheduledRequest(request, start, tokens, samples=True),)), **changes)

    assert runner.supports_async_scheduling(batch(0, 3))
    assert runner.supports_async_scheduling(batch(2))
    assert not runner.supports_async_scheduling(batch(3))
    runner.submit(batch(2))
    assert runner.supports_async_scheduling(batch(3))
    assert not runner.supports_async_scheduling(batch(4))
    assert not runner.supports_async_scheduling(batch(3, copies=((1, 3),)))
    request.spec = replace(request.spec, params=replace(request.params, logprobs=1))
    assert not runner.supports_async_scheduling(batch(3))
    request.output = [5]
    assert runner.supports_async_scheduling(batch(3))


def test_an_unknown_token_leaves_a_runner_that_works(tiny: Decoder) -> None:
    runner, _ = graphs(tiny, cache_of(tiny, 40))
    requests = plain([1, 2, 3])
    requests[0].block_table.block_ids = [1]
    with pytest.raises(UnknownToken, match="'r0' is scheduled at position 3"):
        runner.submit(Batch(1, (ScheduledRequest(requests[0], 3, 1, samples=True),)))
    again = plain([1, 2, 3])
    drive(
        runner,
        Scheduler(config(40)),
        again,
        [0],
    )
    assert len(again[0].output) == 12


def test_padding_writes_nothing(tiny: Decoder) -> None:
    """Three requests run in a step of four rows: the null block stays zero, and unused blocks stay as they were."""
    cache = cache_of(tiny, 40)
    for layer in cache:
        layer[20:] = 7.0
    runner, _ = graphs(tiny, cache)
    requests = plain([1, 2], [3], [4, 5, 6], max_tokens=3)
    drive(
        runner,
        Scheduler(config(19)),
        requests,
        [0, 0, 0],
    )
    for layer in cache:
        assert not layer[0].any()
        assert (layer[20:] == 7.0).all()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_real_model(small: Decoder, temperature: float) -> None:
    """Prompts around a block's edge and tables that grow, in float32."""
    prompts = [[(7 * i + j) % 900 + 100 for j in range(length)] for i, length in enumerate((1, 30, 31, 32, 33))]
    results = []
    for captured in (False, True):
        cache = cache_of(small, 24, block_size=32)
        plain_runner = ModelRunner(small, cache, Sampler(small.config.vocab_size, CPU))
        runner = graphs(small, cache, 256)[0] if captured else plain_runner
        requests = plain(*prompts, temperature=temperature, top_p=0.95, max_tokens=6)
        drive(
            runner,
            Scheduler(
                SchedulerConfig(
                    max_num_seqs=CAPACITY, max_batched_tokens=256, max_model_len=256, block_size=32, num_blocks=24
                )
            ),
            requests,
            [0, 0, 0, 2, 3],
        )
        results.append([request.output for request in requests])
    assert results[0] == results[1]
