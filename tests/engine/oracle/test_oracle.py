"""The engine's float32 output is transformers' output, token for token, however the requests are scheduled.

Greedy output is compared with transformers; seeded output with the engine's own when each request runs alone.
"""

import pytest

pytestmark = pytest.mark.timeout(900)

Outputs = list[list[int]]
Expected = tuple[dict[str, float], Outputs]


def test_alone(engine, prompts: Outputs, transformers_greedy: Outputs) -> None:
    assert engine.run_alone(prompts, temperature=0.0) == transformers_greedy


def test_seeds_matter(sampled_alone: Outputs, transformers_greedy: Outputs) -> None:
    assert sum(ours != greedy for ours, greedy in zip(sampled_alone, transformers_greedy, strict=True)) > 20


def test_batched_together(engine, prompts: Outputs, expected: Expected) -> None:
    params, outputs = expected
    scheduler = engine.scheduler()
    assert engine.run(scheduler, prompts, **params) == outputs


@pytest.mark.parametrize("budget", [31, 32, 33])
def test_chunks_at_block_edges(engine, prompts: Outputs, expected: Expected, budget: int) -> None:
    params, outputs = expected
    scheduler = engine.scheduler(max_batched_tokens=budget, max_num_seqs=budget // 2)
    assert engine.run(scheduler, prompts, **params) == outputs


def test_preempted_every_third_step(engine, prompts: Outputs, expected: Expected) -> None:
    params, outputs = expected
    scheduler = engine.scheduler(force_preempt_every=3)
    assert engine.run(scheduler, prompts, **params) == outputs
    assert scheduler.counters.preemptions >= 5
    assert scheduler.counters.recomputed_tokens > 0


def test_preempted_for_want_of_blocks(engine, prompts: Outputs, expected: Expected) -> None:
    params, outputs = expected
    scheduler = engine.scheduler(num_blocks=40)
    assert engine.run(scheduler, prompts, **params) == outputs


@pytest.mark.parametrize("force", [0, 3])
def test_swapped_to_the_host_and_back(engine, prompts: Outputs, expected: Expected, force: int) -> None:
    params, outputs = expected
    scheduler = engine.scheduler(num_blocks=40, preemption="swap", host_blocks=200, force_preempt_every=force)
    assert engine.run(scheduler, prompts, **params) == outputs
    assert scheduler.counters.swapped_in_blocks > 0
    assert scheduler.counters.recomputed_tokens == 0


def test_identical_prompts_are_computed_once(engine, prompts: Outputs, transformers_greedy: Outputs) -> None:
    scheduler = engine.scheduler(prefix_cache=True)
    assert engine.run(scheduler, [prompts[-1]] * 4, temperature=0.0) == [transformers_greedy[-1]] * 4
    assert scheduler.counters.prefix_waits > 0
    assert scheduler.counters.cached_prompt_tokens == 3 * ((len(prompts[-1]) - 1) // 32 * 32)


def test_warm_prefix_cache(engine, prompts: Outputs, expected: Expected) -> None:
    params, outputs = expected
    scheduler = engine.scheduler(prefix_cache=True)
    engine.run(scheduler, prompts, temperature=0.0)
    cached = scheduler.counters.cached_prompt_tokens
    assert engine.run(scheduler, prompts, **params) == outputs
    assert scheduler.counters.cached_prompt_tokens - cached > 2000
