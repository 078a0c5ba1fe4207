"""Victims go to host memory and come back as they were."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine, unbatched

from paternoster_engine.core.admission.preemption import Swap
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import FinishReason, Request, RequestStatus
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.stats import Counters


def config(**changes: int | bool | str) -> SchedulerConfig:
    values = {
        "max_num_seqs": 4, "max_batched_tokens": 64, "max_model_len": 32, "block_size": 4, "num_blocks": 8,
        "prefix_cache": False, "preemption": "swap", "host_blocks": 40,
    }  # fmt: skip
    return SchedulerConfig(**{**values, **changes})  # type: ignore[arg-type]


def test_nothing_is_computed_twice() -> None:
    engine = CheckedEngine(config())
    prompts = [[i] * 8 for i in range(3)]
    requests = [engine.add(prompt, 20) for prompt in prompts]
    engine.run()
    counters = engine.scheduler.counters
    assert counters.preemptions > 0
    assert counters.recomputed_tokens == 0
    assert counters.swapped_in_blocks == counters.swapped_out_blocks > 0
    assert [request.output for request in requests] == [unbatched(prompt, 20, 32) for prompt in prompts]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 16), st.integers(1, 16)), min_size=3, max_size=8),
    st.sampled_from([1, 3, 4]),
    st.integers(0, 8),
    st.booleans(),
    st.sampled_from([0, 3]),
    st.integers(1, 30),
)
def test_i7_the_output_is_that_of_recomputing(
    traffic: list[tuple[int, int]], size: int, spare: int, prefix_cache: bool, force: int, host: int
) -> None:
    def outputs(preemption: str) -> list[list[int]]:
        engine = CheckedEngine(
            config(
                block_size=size,
                num_blocks=-(-32 // size) + spare,
                prefix_cache=prefix_cache,
                force_preempt_every=force if prefix_cache else 0,
                preemption=preemption,
                host_blocks=host,
            )
        )
        requests = [engine.add([i % 2] * prompt, output) for i, (prompt, output) in enumerate(traffic)]
        engine.run()
        assert engine.scheduler.swap.num_free == host
        return [request.output for request in requests]

    assert outputs("swap") == outputs("recompute")


def test_a_host_block_is_not_written_in_the_batch_that_reads_it() -> None:
    swap = Swap(config(host_blocks=2), Counters())
    back, leaves = (Request(RequestSpec(name, [1] * 9, SamplingParams(max_tokens=2))) for name in ("back", "leaves"))
    back.block_table.block_ids, back.num_computed = [1, 2, 3], 8
    swap.save(back)
    assert len(swap.take_copies()[0]) == 2
    back.block_table.block_ids, leaves.block_table.block_ids, leaves.num_computed = [4, 5, 6], [7, 8, 9], 8
    assert swap.restore(back, 0) == 8
    swap.save(leaves)
    assert not leaves.block_table.host_block_ids
    out, into = swap.take_copies()
    assert not out
    assert {block for _, block in into} == {4, 5}
    swap.save(leaves)
    assert {host for _, host in swap.take_copies()[0]} == {host for host, _ in into}


def test_without_room_on_the_host_a_victim_is_recomputed() -> None:
    engine = CheckedEngine(config(host_blocks=1))
    for i in range(3):
        engine.add([i] * 8, 20)
    engine.run()
    assert engine.scheduler.counters.recomputed_tokens > 0
    assert engine.scheduler.counters.swapped_out_blocks == 0


def test_who_is_aborted_on_the_host_leaves_no_blocks_there() -> None:
    engine = CheckedEngine(config())
    requests = [engine.add([i] * 8, 20) for i in range(3)]
    while not engine.scheduler.counters.swapped_out_blocks:
        engine.step()
    (swapped,) = [request for request in requests if request.block_table.host_block_ids]
    engine.scheduler.abort(swapped.request_id)
    assert engine.scheduler.swap.num_free == 40
    engine.run()


def test_a_step_that_failed_leaves_nobody_with_a_copy_that_may_not_have_been_made() -> None:
    engine = CheckedEngine(config())
    for i in range(3):
        engine.add([i] * 8, 20)
    while not (batch := engine.scheduler.schedule(engine.now)).swap_out:
        engine.scheduler.update(batch, engine.model.execute(batch), engine.now)
    (victim,) = batch.preempted
    engine.scheduler.fail_step(batch)
    engine.scheduler.check_integrity()
    assert not victim.block_table.host_block_ids
    engine.run()
    assert victim.finish_reason is FinishReason.LENGTH
    assert victim.output == unbatched(victim.prompt, 20, 32)


def test_those_that_come_back_take_turns_with_fresh_ones() -> None:
    engine = CheckedEngine(config(num_blocks=12, max_num_seqs=3))
    for i in range(3):
        engine.add([i] * 12, 16)
    while sum(r.status is RequestStatus.PREEMPTED for r in engine.scheduler.waiting) < 2:
        engine.step()
    for i in range(6):
        engine.add([10 + i], 2)
    kinds: list[bool] = []
    seen = set(engine.scheduler.running)
    while len(kinds) < 3:
        engine.step()
        for item in engine.batches[-1].scheduled:
            if item.request not in seen:
                kinds.append(item.request.num_preemptions > 0)
                seen.add(item.request)
    assert kinds in ([True, False, True], [False, True, False])
    engine.run()
