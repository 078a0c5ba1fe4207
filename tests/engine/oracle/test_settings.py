"""Whatever the scheduler goes by, greedy output is transformers' token for token, and log probabilities to 1e-3.

The pool holds less than half of what one request for each prompt needs, so greedy admission preempts. Run are
combinations in which every two settings meet; ``PATERNOSTER_ORACLE=full`` runs all there are, for a nightly run.
"""

import os
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch
from tests.engine.oracle.covering import Combination, every, pairwise

from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams

pytestmark = pytest.mark.timeout(900)

POLICIES = {
    "admission": ("greedy", "no-evict"),
    "order": ("fcfs", "priority", "fair-share"),
    "preemption": ("recompute", "swap"),
    "prefix_cache": (False, True),
    "prefill_first": (False, True),
    "max_batched_tokens": (33, 512),
    "n": (1, 3),
}
CHOSEN = (5, 6, 9, 10, 13)
"""Prompts of 31, 32, 63, 64 and 95 tokens: blocks are of 32, and all of them soon need one more."""
NUM_BLOCKS = 6
MAX_TOKENS = 6
TOLERANCE = 1e-3
COMBINATIONS = list(every(POLICIES) if os.environ.get("PATERNOSTER_ORACLE") == "full" else pairwise(POLICIES))


def test_every_two_settings_meet() -> None:
    for a, b in combinations(POLICIES, 2):
        met = {(chosen[a], chosen[b]) for chosen in COMBINATIONS}
        assert len(met) == len(POLICIES[a]) * len(POLICIES[b])


@pytest.mark.parametrize("chosen", COMBINATIONS, ids=lambda chosen: "-".join(str(value) for value in chosen.values()))
def test_any_settings(
    engine: Any,
    prompts: list[list[int]],
    greedy_of: Callable[[int], list[int]],
    scores: Callable[[list[int]], torch.Tensor],
    chosen: Combination,
) -> None:
    settings = {name: value for name, value in chosen.items() if name != "n"}
    # Where both may be: half of those that go by class.
    pauses = chosen["order"] == "priority" and not chosen["prefill_first"] and chosen["prefix_cache"]
    host_blocks = 0 if chosen["preemption"] == "recompute" else 64
    scheduler = engine.scheduler(num_blocks=NUM_BLOCKS, host_blocks=host_blocks, pause_lower_classes=pauses, **settings)
    requests = [request for i in CHOSEN for request in _choices(i, prompts[i], chosen["n"])]
    engine.play(scheduler, requests)
    counters = scheduler.counters
    if chosen["admission"] == "greedy":
        assert counters.preemptions > 0
    else:
        assert counters.preemptions == counters.priority_preemptions
    if chosen["preemption"] == "swap":
        assert counters.recomputed_tokens == 0
    for request in requests:
        expected = greedy_of(request.seed)[:MAX_TOKENS]
        assert request.output == expected
        after = scores([*request.prompt, *expected])[request.num_prompt - 1 : -1]
        for entry, token, theirs in zip(request.logprobs, expected, after, strict=True):
            assert entry.token == token
            assert entry.logprob == pytest.approx(theirs[token].item(), abs=TOLERANCE)
            assert [logprob for _, logprob in entry.top] == pytest.approx(theirs.topk(2).values.tolist(), abs=TOLERANCE)


def _choices(index: int, prompt: list[int], n: int) -> list[Request]:
    """Sequences of one prompt, as ``n`` makes them; classes, users and deadlines differ from prompt to prompt."""
    params = SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0, ignore_eos=True, logprobs=2)
    requests = [
        Request(
            RequestSpec(
                f"r{index}-{choice}",
                list(prompt),
                params,
                seed=index,
                priority=index % 3 - 1,
                tenant="ab"[index % 2],
                deadline=None if index % 3 else float("inf"),
            )
        )
        for choice in range(n)
    ]
    for request in requests[1:]:
        request.prefix_donor = requests[0]
    return requests
