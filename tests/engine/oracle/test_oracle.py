"""The engine's float32 output is transformers' output, token for token, however the requests are scheduled.

Greedy output is compared with transformers; seeded output with the engine's own, alone and in any company. Both run
side by side, every other request; which half is greedy changes from test to test. All prompts run once together;
other schedules get those around block edges and the longest, which is longer than a step and than a chunk of attention.

The model is the first layers and tokens of the default one, in which a schedule's faults show as in all; one test has
all of them.
"""

from collections.abc import Callable, Sequence

import pytest

from paternoster_engine.model.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.timeout(900)

NUM_BLOCKS = 22
"""Blocks of the 54 that these prompts and their outputs fill."""

Outputs = list[list[int]]
Expected = Callable[..., Outputs]


def test_all_layers(
    whole_engine,
    prompts: Outputs,
    greedy_with: Callable[..., Callable[[int], list[int]]],
    checkpoint: Checkpoint,
) -> None:
    """Prompts of 47 to 65 tokens, in chunks and beside others that decode."""
    chosen, greedy = range(8, 12), greedy_with(checkpoint.config.num_layers)
    scheduler = whole_engine.scheduler(max_batched_tokens=90)
    outputs = whole_engine.run(scheduler, [prompts[i] for i in chosen], temperature=0.0)
    assert outputs == [greedy(i) for i in chosen]


def test_alone(engine, prompts: Outputs, edges: Sequence[int], expected: Expected) -> None:
    assert engine.run_alone(prompts, 1, edges) == expected(1, edges)


def test_seeds_matter(sampled_together: Outputs, transformers_greedy: Outputs) -> None:
    assert sum(ours != greedy for ours, greedy in zip(sampled_together, transformers_greedy, strict=True)) > 20


@pytest.mark.parametrize("sampled", [0, 1])
def test_batched_together(engine, prompts: Outputs, expected: Expected, sampled: int) -> None:
    assert engine.run_mixed(engine.scheduler(), prompts, sampled) == expected(sampled)


@pytest.mark.parametrize(("budget", "sampled"), [(31, 0), (32, 1), (33, 0)])
def test_chunks_at_block_edges(
    engine, prompts: Outputs, edges: Sequence[int], expected: Expected, budget: int, sampled: int
) -> None:
    """The longest prompt, which is half of all tokens, in chunks of one length: edges are where the others end."""
    chosen = edges if budget == 33 else edges[:-1]
    scheduler = engine.scheduler(max_batched_tokens=budget, max_num_seqs=budget // 4)
    assert engine.run_mixed(scheduler, prompts, sampled, chosen) == expected(sampled, chosen)


def test_preempted_every_third_step(engine, prompts: Outputs, edges: Sequence[int], expected: Expected) -> None:
    scheduler = engine.scheduler(force_preempt_every=3)
    assert engine.run_mixed(scheduler, prompts, 1, edges) == expected(1, edges)
    assert scheduler.counters.preemptions >= 5
    assert scheduler.counters.recomputed_tokens > 0


def test_preempted_for_want_of_blocks(engine, prompts: Outputs, edges: Sequence[int], expected: Expected) -> None:
    scheduler = engine.scheduler(num_blocks=NUM_BLOCKS)
    assert engine.run_mixed(scheduler, prompts, 0, edges) == expected(0, edges)
    assert scheduler.counters.preemptions > 0


@pytest.mark.parametrize(("force", "sampled"), [(0, 1), (3, 0)])
def test_swapped_to_the_host_and_back(
    engine, prompts: Outputs, edges: Sequence[int], expected: Expected, force: int, sampled: int
) -> None:
    scheduler = engine.scheduler(num_blocks=NUM_BLOCKS, preemption="swap", host_blocks=200, force_preempt_every=force)
    assert engine.run_mixed(scheduler, prompts, sampled, edges) == expected(sampled, edges)
    assert scheduler.counters.swapped_in_blocks > 0
    assert scheduler.counters.recomputed_tokens == 0


def test_identical_prompts_are_computed_once(engine, prompts: Outputs, transformers_greedy: Outputs) -> None:
    scheduler = engine.scheduler(prefix_cache=True)
    assert engine.run(scheduler, [prompts[-1]] * 4, temperature=0.0) == [transformers_greedy[-1]] * 4
    assert scheduler.counters.prefix_waits > 0
    assert scheduler.counters.cached_prompt_tokens == 3 * ((len(prompts[-1]) - 1) // 32 * 32)


def test_warm_prefix_cache(engine, prompts: Outputs, edges: Sequence[int], expected: Expected) -> None:
    scheduler = engine.scheduler(prefix_cache=True)
    assert engine.run_mixed(scheduler, prompts, 0, edges) == expected(0, edges)
    cached = scheduler.counters.cached_prompt_tokens
    assert engine.run_mixed(scheduler, prompts, 1, edges) == expected(1, edges)
    # Whole blocks; of a prompt the last token is computed again.
    assert scheduler.counters.cached_prompt_tokens - cached == sum((len(prompts[i]) - 1) // 32 * 32 for i in edges)
