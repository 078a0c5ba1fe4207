"""Identical beginnings that arrive together are computed once."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine, unbatched

from paternoster_engine.core.config import SchedulerConfig


def config(**changes: int | bool | str) -> SchedulerConfig:
    values = {"max_num_seqs": 8, "max_batched_tokens": 16, "max_model_len": 64, "block_size": 4, "num_blocks": 100}
    return SchedulerConfig(**{**values, **changes})  # type: ignore[arg-type]


def test_a_common_prompt_is_computed_by_the_first_alone() -> None:
    def computed(await_prefix: bool) -> int:
        engine = CheckedEngine(config(await_prefix=await_prefix, max_batched_tokens=64))
        for _ in range(6):
            engine.add([1] * 33, 1)
        engine.run()
        return engine.scheduler.counters.computed_tokens

    assert computed(True) == 33 + 5 * 1
    assert computed(False) > 33 + 5 * 1


def test_those_with_another_beginning_pass() -> None:
    engine = CheckedEngine(config())
    first, second, other = engine.add([1] * 12, 2), engine.add([1] * 12, 2), engine.add([2] * 4, 2)
    scheduled = {item.request for item in engine.step().scheduled}
    assert scheduled == {first, other}
    assert engine.scheduler.counters.prefix_waits == 1
    assert engine.scheduler.num_deferred == 1
    assert second in {item.request for item in engine.step().scheduled}
    engine.run()


def test_who_waits_goes_on_when_the_one_it_waits_for_is_gone() -> None:
    engine = CheckedEngine(config(max_batched_tokens=8))
    first, second = engine.add([1] * 40, 2), engine.add([1] * 40, 2)
    engine.step()
    assert second.first_scheduled is None
    engine.scheduler.abort(first.request_id)
    engine.step()
    assert second.first_scheduled is not None
    engine.run()
    assert second.output == unbatched([1] * 40, 2, 64)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6), st.integers(1, 8)), min_size=2, max_size=10),
    st.sampled_from([1, 3, 4, 8]),
    st.integers(4, 40),
    st.integers(0, 30),
    st.sampled_from([0, 5]),
    st.booleans(),
)
def test_no_block_that_is_in_the_making_is_begun_again_and_nobody_waits_for_ever(
    traffic: list[tuple[int, int, int]], size: int, budget: int, spare: int, force: int, prefill_first: bool
) -> None:
    engine = CheckedEngine(
        config(
            block_size=size,
            max_batched_tokens=budget,
            num_blocks=-(-64 // size) + spare,
            force_preempt_every=force,
            prefill_first=prefill_first,
        )
    )
    requests = [
        engine.add([7] * common + [i % 3] * own + [9], output) for i, (common, own, output) in enumerate(traffic)
    ]
    admitted: set[str] = set()
    while engine.scheduler.has_work:
        running = set(engine.scheduler.running)
        batch = engine.step()
        makers = {
            tuple(item.request.slice_tokens(0, stop))
            for item in batch.scheduled
            if item.request in running
            for stop in range(item.start // size * size + size, item.stop + 1, size)
        }
        for item in batch.scheduled:
            request = item.request
            if request not in running and item.start + size < request.num_prompt:
                first_block = tuple(request.slice_tokens(0, (item.start // size + 1) * size))
                assert first_block not in makers, f"{request.request_id} computes a block that is being computed"
                admitted.add(request.request_id)
        assert len(engine.batches) < 5000
    for request in requests:
        assert request.output == unbatched(request.prompt, request.params.max_tokens, 64)
