"""A model that is broken for one token: requests with it end with an error, and nothing of them reaches the others."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pytest
import torch

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.layers.parts import Quantization
from paternoster_engine.model.weights.stored import LazyTensor, TensorSlice
from paternoster_engine.runner.draft_model import DraftModel
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.sampling.beam_search import BeamParams, BeamSearch
from paternoster_engine.sampling.sampler import Sampler

CPU = torch.device("cpu")
BLOCKS, BLOCK_SIZE = 24, 32
POISON = 4711
"""The token whose row of the embedding is NaN. The model's output matrix, which is the same one, is not."""
VOCABULARY = 5120
"""First tokens of the default model's 49,152: most of the time of three layers is spent on the others' logits."""
MAX_TOKENS = 6


class PoisonedEmbedding:
    """Embedding of a token of one's own: no number at all, or only its first is infinite."""

    def __init__(self, embedding: Any, value: float) -> None:
        self._embedding = embedding
        self._value = value

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = self._embedding(token_ids).clone()
        width = rows.shape[1] if self._value != self._value else 1
        rows[token_ids == POISON, :width] = self._value
        return rows


def decoder(checkpoint: Checkpoint, dtype: torch.dtype, quantization: Quantization, value: float | None) -> Decoder:
    config = replace(checkpoint.config, num_layers=3, vocab_size=VOCABULARY)

    def tensor(name: str) -> LazyTensor:
        stored = checkpoint.get_tensor(name)
        return TensorSlice(stored, 0, 0, VOCABULARY) if name == "model.embed_tokens.weight" else stored

    model = Decoder(config, tensor, dtype, CPU, quantization=quantization)
    if value is not None:
        model._embedding = PoisonedEmbedding(model._embedding, value)  # type: ignore[assignment]
    return model


KINDS: dict[str, tuple[torch.dtype, torch.dtype, Quantization, float]] = {
    "float32": (torch.float32, torch.float32, "none", float("nan")),
    "bfloat16": (torch.bfloat16, torch.bfloat16, "none", float("nan")),
    "infinite": (torch.bfloat16, torch.bfloat16, "none", float("inf")),
    "int8 weights and cache": (torch.bfloat16, torch.int8, "int8", float("nan")),
    "infinite, int8 weights and cache": (torch.bfloat16, torch.int8, "int8", float("inf")),
}


class Kind:
    """A model with and without the poison, and engines of it over one pool."""

    def __init__(self, checkpoint: Checkpoint, name: str) -> None:
        self.dtype, self.kv_dtype, quantization, value = KINDS[name]
        self.clean = decoder(checkpoint, self.dtype, quantization, None)
        self.broken = decoder(checkpoint, self.dtype, quantization, value)

    @cached_property
    def expected(self) -> list[list[int]]:
        """Outputs of the clean model for ``PROMPTS``."""
        return play(self.engine(broken=False), make_requests(PROMPTS))

    def engine(self, *, broken: bool = True, draft: bool = False, **settings: Any) -> Engine:
        model = self.broken if broken else self.clean
        cache = allocate_kv_cache(KVPoolShape(BLOCKS, BLOCK_SIZE, 0), model.config, self.kv_dtype, CPU)
        defaults = {"max_num_seqs": 8, "max_batched_tokens": 256, "speculative": "off", "prefix_cache": True}
        sizes = {"max_model_len": 256, "block_size": BLOCK_SIZE, "num_blocks": BLOCKS}
        config = SchedulerConfig(**{**defaults, **sizes, **settings})
        sampler = Sampler(model.config.vocab_size, CPU)
        drafter = None
        if draft:
            pool = allocate_kv_cache(KVPoolShape(BLOCKS, BLOCK_SIZE, 0), model.config, self.kv_dtype, CPU)
            drafter = DraftModel(model, pool, sampler, cost=0.02)
        return Engine(Scheduler(config, drafter=drafter), ModelRunner(model, cache, sampler))


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Kind:
    return Kind(checkpoint, request.param)


@pytest.fixture(scope="module")
def bfloat16(checkpoint: Checkpoint) -> Kind:
    return Kind(checkpoint, "bfloat16")


PREFIX = [1000 + 7 * i for i in range(BLOCK_SIZE)]
"""A block that several prompts begin with."""
PROMPTS = [[*PREFIX, *range(300 + 20 * i, 300 + 23 * i + 4)] for i in range(4)] + [[*range(60, 131)], [8, 9]]


def make_requests(prompts: Sequence[Sequence[int]], name: str = "r", **params: Any) -> list[Request]:
    settings = [{"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.9}, {"temperature": 0.0, "logprobs": 2}]
    return [
        Request(
            RequestSpec(
                f"{name}{i}",
                list(prompt),
                SamplingParams(**{"max_tokens": MAX_TOKENS, "ignore_eos": True, **settings[i % 3], **params}),
                seed=i,
            )
        )
        for i, prompt in enumerate(prompts)
    ]


def play(engine: Engine, requests: Sequence[Request]) -> list[list[int]]:
    engine.scheduler.add(*requests)
    while engine.scheduler.has_work:
        engine.step()
        engine.scheduler.check_integrity()
    assert engine.scheduler.pool.num_used == 0
    return [request.output for request in requests]


def is_corrupted(request: Request) -> bool:
    assert request.corrupted == (request.finish_reason is FinishReason.ERROR)
    return request.corrupted


def poisoned_prompts() -> list[list[int]]:
    """In the first, a middle and the last place; also behind the common block, and at its edge."""
    return [
        [POISON, *range(40, 90)],
        [*range(40, 90), POISON, *range(90, 130)],
        [*range(200, 220), POISON],
        [*PREFIX, POISON, *range(200, 250)],
        [*PREFIX[:-1], POISON, *range(200, 250)],
        [*PREFIX, 5, POISON],
    ]


SCHEDULES: dict[str, dict[str, Any]] = {
    "whole": {},
    "chunks": {"max_batched_tokens": 33},
    "ahead": {"overlap": True, "max_batched_tokens": 50},
    "with lookups": {"speculative": "ngram"},
    "preempted": {"force_preempt_every": 3},
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_neighbours_say_what_they_say_without(kind: Kind, schedule: str) -> None:
    """Beside the poisoned ones, in the blocks that these have left, and with what is cached then."""
    engine = kind.engine(**SCHEDULES[schedule])
    clean, bad = make_requests(PROMPTS), make_requests(poisoned_prompts(), "bad")
    play(engine, [request for pair in zip(bad, clean, strict=True) for request in pair])
    assert [request.output for request in clean] == kind.expected
    assert all(map(is_corrupted, bad))
    assert not any(map(is_corrupted, clean))
    assert [request.output for request in bad] == [[]] * len(bad)
    for round_ in range(3):
        assert play(engine, make_requests(PROMPTS, f"again{round_}")) == kind.expected
    assert engine.scheduler.counters.corrupted_requests == len(bad)


def test_nothing_of_a_poisoned_prompt_is_found_again(bfloat16: Kind) -> None:
    """Although its first chunks were computed, and found by others, before the last one showed the fault."""
    engine = bfloat16.engine(max_batched_tokens=32)
    prompt = [POISON, *range(40, 200)]
    (first,) = make_requests([prompt])
    engine.scheduler.add(first)
    for _ in range(3):
        engine.step()
    assert first.block_table.num_cached_rows > 0
    while engine.scheduler.has_work:
        engine.step()
    assert is_corrupted(first)
    assert engine.scheduler.pool.num_cached == 0
    (second,) = make_requests([prompt], "again")
    play(engine, [second])
    assert (is_corrupted(second), second.num_cached) == (True, 0)


@pytest.mark.parametrize("greedy", [True, False])
def test_a_prompt_of_which_log_probabilities_are_asked(bfloat16: Kind, greedy: bool) -> None:
    params = {"prompt_logprobs": 1, "temperature": 0.0 if greedy else 1.0, "max_tokens": 2}
    engine = bfloat16.engine()
    bad, clean = make_requests([[7, POISON, 8], [7, 8, 9]], **params)
    play(engine, [bad, clean])
    assert is_corrupted(bad)
    assert not is_corrupted(clean)


def test_beams_end_together(bfloat16: Kind) -> None:
    engine = bfloat16.engine()
    requests = make_requests([[*PREFIX, POISON, 3], [*PREFIX, 3, 4]])
    for request in requests:
        request.branch_selector = BeamSearch(BeamParams(width=3), request.params, ())
    play(engine, requests)
    assert [is_corrupted(request) for request in requests] == [True, False]
    assert len(requests[1].output) == MAX_TOKENS


@pytest.mark.parametrize("draft", [False, True])
def test_proposals_of_the_poisoned_token_do_no_harm(bfloat16: Kind, draft: bool) -> None:
    """Rows after it are NaN, and count only if it is what was sampled."""
    prompt = [*range(50, 58), POISON, *range(60, 64)]
    expected = play(bfloat16.engine(broken=False), make_requests([range(50, 58)] * 3))
    engine = bfloat16.engine(draft=draft, speculative="draft" if draft else "ngram")
    bad = make_requests([prompt], "bad")
    requests = make_requests([range(50, 58)] * 3)
    for request in requests:
        request.spec = replace(request.spec, params=replace(request.params, max_tokens=MAX_TOKENS))
    proposed = engine.scheduler._speculation

    def tokens(*_: Any) -> list[int]:
        return [POISON, 3]

    proposed._find_proposal = tokens  # type: ignore[method-assign, assignment]
    play(engine, [*requests, *bad])
    assert [request.output for request in requests] == expected
    assert sum(engine.scheduler.counters.proposed_tokens.values()) > 0
    assert [is_corrupted(request) for request in (*requests, *bad)] == [False] * 3 + [True]


def test_a_token_that_is_said_ends_the_answer(bfloat16: Kind) -> None:
    """The poisoned one is itself sampled from good logits; what would follow it is not."""
    engine = bfloat16.engine()
    (request,) = make_requests([[5, 6, 7]], logit_bias=((POISON, 100.0),))
    play(engine, [request])
    assert is_corrupted(request)
    assert request.output == [POISON]
