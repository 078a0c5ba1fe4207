"""With a draft model, one as good as the model or one that is random, every token is what it is without."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from gpu.engines.random_weights import random_weights
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.model_drafts import DRAFT
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.core.stats import Counters
from paternoster_engine.engine import Engine
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.runner.draft_model import DraftModel, relative_cost
from paternoster_engine.runner.kv_pool import HostKVCache, KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.sampling.sampler import Sampler

CPU = torch.device("cpu")
BLOCKS, BLOCK_SIZE, HOST_BLOCKS, MAX_TOKENS = 60, 8, 40, 20
CONFIG = ModelConfig(
    architecture="llama",
    name="tiny",
    vocab_size=97,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    context_length=96,
    rope_theta=10_000.0,
    rms_norm_eps=1e-5,
    tied_embeddings=False,
)
PARAMS: Sequence[dict[str, Any]] = (
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_p": 0.9, "frequency_penalty": 0.4},
    {"temperature": 0.0, "repetition_penalty": 1.2, "logprobs": 1},
    {"temperature": 1.2, "min_p": 0.05, "logit_bias": ((5, 2.0),)},
    {"temperature": 0.0, "prompt_logprobs": 1, "stop_token_ids": (3, 4, 5)},
)
Outputs = list[list[int]]


def decoder(seed: int, layers: int = 2) -> Decoder:
    config = replace(CONFIG, num_layers=layers)
    weights = random_weights(config, torch.float32, torch.Generator().manual_seed(seed), spread=3.0)
    return Decoder(config, weights, torch.float32, CPU)


def pool(model: Decoder) -> tuple[torch.Tensor, ...]:
    return allocate_kv_cache(KVPoolShape(BLOCKS, BLOCK_SIZE, 0), model.config, torch.float32, CPU)


@pytest.fixture(scope="module")
def model() -> Decoder:
    return decoder(5)


@pytest.fixture(scope="module")
def runner(model: Decoder) -> ModelRunner:
    cache = pool(model)
    return ModelRunner(model, cache, Sampler(CONFIG.vocab_size, CPU), HostKVCache(HOST_BLOCKS, cache))


def drafter(model: Decoder) -> DraftModel:
    """One whose steps seem to cost next to nothing, so that it proposes as many tokens as it gets right."""
    return DraftModel(model, pool(model), Sampler(CONFIG.vocab_size, CPU), cost=0.02)


def requests() -> list[Request]:
    generator = torch.Generator().manual_seed(1)
    lengths = (1, 7, 8, 9, 16, 17, 30, 31, 40, 5, 5, 23)
    made = []
    for i, length in enumerate(lengths):
        prompt = torch.randint(CONFIG.vocab_size, (length,), generator=generator).tolist()
        params = SamplingParams(max_tokens=MAX_TOKENS, **PARAMS[i % len(PARAMS)])
        made.append(Request(RequestSpec(f"r{i}", prompt, params, seed=i)))
    return made


def play(runner: ModelRunner, draft: DraftModel | None, submitted: Sequence[Request], **settings: Any) -> Counters:
    defaults = {"max_num_seqs": 4, "max_batched_tokens": 64, "max_model_len": 96, "prefix_cache": False}
    sizes = {"block_size": BLOCK_SIZE, "num_blocks": BLOCKS, "speculative": "draft" if draft else "off"}
    scheduler = Scheduler(SchedulerConfig(**{**defaults, **sizes, **settings}), drafter=draft)
    engine = Engine(scheduler, runner)
    scheduler.add(*submitted)
    while scheduler.has_work:
        engine.step()
    scheduler.check_integrity()
    return scheduler.counters


@pytest.fixture(scope="module")
def plain(runner: ModelRunner) -> list[Request]:
    """One at a time, each token sampled for itself."""
    submitted = requests()
    for request in submitted:
        play(runner, None, [request])
    return submitted


@pytest.mark.parametrize(
    ("settings", "good"),
    [
        ({}, True),
        ({"max_batched_tokens": 11}, True),
        ({"force_preempt_every": 3}, True),
        ({"force_preempt_every": 3, "preemption": "swap", "host_blocks": HOST_BLOCKS}, True),
        ({"num_blocks": 20}, True),
        ({"prefix_cache": True}, True),
        ({"order": "fair-share", "tenant_weights": {"a": 3.0}}, True),
        ({"overlap": True}, True),
        ({}, False),
        ({"max_batched_tokens": 24, "force_preempt_every": 3}, False),
    ],
    ids=str,
)
def test_output_is_that_without_it(
    settings: dict[str, Any], good: bool, model: Decoder, runner: ModelRunner, plain: list[Request]
) -> None:
    draft = drafter(model if good else decoder(6, layers=1))
    for _ in range(2 if settings.get("prefix_cache") else 1):
        submitted = requests()
        for i, request in enumerate(submitted):
            request.spec = replace(request.spec, tenant="ab"[i % 2])
        counters = play(runner, draft, submitted, **settings)
        assert [request.output for request in submitted] == [request.output for request in plain]
        for ours, theirs in zip(submitted, plain, strict=True):
            assert ours.finish_reason is theirs.finish_reason
            assert [t.token for t in ours.logprobs] == [t.token for t in theirs.logprobs]
            assert [t.token for t in ours.prompt_logprobs] == [t.token for t in theirs.prompt_logprobs]
    proposed, accepted = counters.proposed_tokens[DRAFT], counters.accepted_tokens[DRAFT]
    assert proposed > 0
    # Those that are drawn among them, as the draft model draws with the same numbers.
    assert accepted >= 0.97 * proposed if good else accepted < 0.5 * proposed
    assert counters.preemptions > 0 or "force_preempt_every" not in settings


def test_few_steps_are_taken_where_it_is_right(model: Decoder, runner: ModelRunner, plain: list[Request]) -> None:
    for request, expected in zip(requests()[:6], plain, strict=False):
        counters = play(runner, drafter(model), [request])
        assert request.output == expected.output
        if len(request.output) == MAX_TOKENS:
            assert counters.steps.total[0] < MAX_TOKENS / 3


def test_one_that_fails_is_used_no_more(
    model: Decoder, runner: ModelRunner, plain: list[Request], caplog: pytest.LogCaptureFixture
) -> None:
    draft = drafter(model)
    draft._kv_cache = ()
    submitted = requests()
    with caplog.at_level(logging.ERROR):
        counters = play(runner, draft, submitted)
    assert [request.output for request in submitted] == [request.output for request in plain]
    assert counters.proposed_tokens[DRAFT] == 0
    assert caplog.text.count("the draft model failed") == 1


def test_the_cost_is_one_of_its_steps_in_steps_of_the_model(
    model: Decoder, runner: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock counts 2 s for a step of the draft model, and 8 s for one of the model."""
    draft, now = drafter(model), [0.0]
    compute, execute = draft.compute_drafts, runner.execute

    def draft_step(tasks: Any) -> Any:
        now[0] += 2
        return compute(tasks)

    def step(batch: Any) -> Any:
        now[0] += 8
        return execute(batch)

    monkeypatch.setattr(draft, "compute_drafts", draft_step)
    monkeypatch.setattr(runner, "execute", step)
    monkeypatch.setattr("paternoster_engine.runner.draft_model.time.perf_counter", lambda: now[0])
    assert relative_cost(draft, runner) == 0.25
