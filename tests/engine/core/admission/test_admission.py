"""What memory an admission leaves: rules that never evict, and what they leave unused."""

from itertools import count
from random import Random

from tests.engine.core.fake_model import CheckedEngine
from tests.engine.core.traces import NUM_TRACES

from paternoster_engine.core.config import SchedulerConfig

MAX_LEN = 48


def _run_through(config: SchedulerConfig, traffic: list[tuple[int, int, int]]) -> CheckedEngine:
    """Play (prompt tokens, output tokens, step of arrival)."""
    engine = CheckedEngine(config)
    pending = sorted(traffic, key=lambda item: item[2])
    for step in count():
        if not pending and not engine.scheduler.has_work:
            return engine
        while pending and pending[0][2] <= step:
            prompt, output, _ = pending.pop(0)
            engine.add([len(pending) % 3] * prompt, output)
        engine.step()
    raise AssertionError("unreachable")


def test_i18_nobody_is_ever_preempted() -> None:
    """Pools for one and a bit, budgets that keep prompts back for many steps or do not reach every request."""
    for seed in range(NUM_TRACES):
        rng = Random(seed)
        size = rng.choice([1, 1, 2, 5])
        config = SchedulerConfig(
            max_num_seqs=rng.randint(2, 8),
            max_batched_tokens=rng.choice([2, 3, 4, 6, 40]),
            max_model_len=MAX_LEN,
            block_size=size,
            num_blocks=-(-MAX_LEN // size) + rng.randint(0, 24 // size),
            admission="no-evict",
            order=rng.choice(["fcfs", "fair-share"]),
            prefill_first=rng.random() < 0.3,
            prefix_cache=rng.random() < 0.3,
        )
        traffic = [
            (rng.choice([1, 4, rng.randint(1, 24)]), rng.choice([2, rng.randint(1, 24)]), rng.choice([0, 0, 5, 9]))
            for _ in range(rng.randint(4, 14))
        ]
        assert _run_through(config, traffic).scheduler.counters.preemptions == 0, f"seed {seed}"


def _admitted_at_once(outputs: list[int], num_blocks: int) -> int:
    engine = CheckedEngine(
        SchedulerConfig(
            max_num_seqs=8,
            max_batched_tokens=64,
            max_model_len=64,
            block_size=1,
            num_blocks=num_blocks,
            admission="no-evict",
            prefix_cache=False,
        )
    )
    for output in outputs:
        engine.add([1], output)
    return len(engine.step().scheduled)


def test_no_evict_is_exact_to_the_block() -> None:
    """When the short one takes its last step both hold 9 blocks, and the long one ends with 39."""
    assert _admitted_at_once([39, 9], 39) == 2
    assert _admitted_at_once([20, 20], 40) == 2
    assert _admitted_at_once([20, 20], 39) == 1


def test_greedy_admits_more_and_pays_with_preemptions() -> None:
    engine = CheckedEngine(
        SchedulerConfig(
            max_num_seqs=8, max_batched_tokens=64, max_model_len=64, block_size=1, num_blocks=44, prefix_cache=False
        )
    )
    for _ in range(3):
        engine.add([1], 39)
    engine.run()
    assert engine.scheduler.counters.preemptions > 0
