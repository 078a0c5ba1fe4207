"""The scheduler stepped by hand, at the places where others went wrong."""

import pytest
from tests.engine.core.fake_model import CheckedEngine, unbatched

from paternoster_contract.request_phases import WaitReason
from paternoster_engine.core.batch import StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.errors import PromptTooLong
from paternoster_engine.core.request import FinishReason, Request, RequestStatus
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler


def config(**changes: int | bool | str) -> SchedulerConfig:
    values = {"max_num_seqs": 4, "max_batched_tokens": 64, "max_model_len": 64, "block_size": 4, "num_blocks": 40}
    return SchedulerConfig(**{**values, **changes})  # type: ignore[arg-type]


def test_a_long_prompt_is_cut_to_the_budget_and_only_its_last_chunk_samples() -> None:
    engine = CheckedEngine(config(max_batched_tokens=10))
    request = engine.add(list(range(25)), 3)
    chunks = [engine.step().scheduled[0] for _ in range(3)]
    assert [(c.start, c.num_tokens, c.samples) for c in chunks] == [(0, 10, False), (10, 10, False), (20, 5, True)]
    assert len(request.output) == 1


def test_decodes_go_on_beside_a_long_prompt() -> None:
    engine = CheckedEngine(config(max_batched_tokens=8))
    short = engine.add([1, 2], 10)
    engine.step()
    engine.add(list(range(30)), 3)
    for expected in (2, 3, 4):
        engine.step()
        assert len(short.output) == expected


def test_a_prompt_that_is_wholly_cached_still_computes_its_last_token() -> None:
    engine = CheckedEngine(config())
    prompt = list(range(16))
    first = engine.add(prompt, 4)
    engine.run()
    second = engine.add(prompt, 4)
    (item,) = engine.step().scheduled
    assert (item.start, item.num_tokens, item.samples) == (12, 4, True)
    engine.run()
    assert second.output == first.output


@pytest.mark.parametrize("length", [7, 8, 9])
def test_a_preempted_request_keeps_the_token_it_sampled(length: int) -> None:
    """Its prompt grows by its own output; at a block's edge the last token is easily lost."""
    engine = CheckedEngine(config(num_blocks=6, max_model_len=24))
    prompts = [[1] * length, [2] * length]
    requests = [engine.add(prompt, 12) for prompt in prompts]
    engine.run()
    assert engine.scheduler.counters.preemptions > 0
    assert [r.output for r in requests] == [unbatched(p, 12, 24) for p in prompts]


def test_the_victim_has_computed_least() -> None:
    engine = CheckedEngine(config(num_blocks=8, max_model_len=32, prefix_cache=False))
    older = engine.add([1] * 4, 24)
    longer = engine.add([2] * 14, 16)
    while not engine.scheduler.counters.preemptions:
        engine.step()
    assert older.status is RequestStatus.PREEMPTED
    assert longer.status is RequestStatus.RUNNING
    engine.run()


def test_preempted_requests_come_before_new_ones_in_order_of_arrival() -> None:
    scheduler = Scheduler(config(num_blocks=4, max_model_len=16, force_preempt_every=2))
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    requests = [Request(RequestSpec(f"r{i}", [i + 1, 9, 9], params, arrival=i)) for i in range(4)]
    for request in requests:
        scheduler.add(request)
    batch = scheduler.schedule(0)
    scheduler.update(batch, StepResult([5 if item.samples else None for item in batch.scheduled]), 0)
    scheduler.schedule(1)
    arrivals = [r.spec.arrival for r in scheduler.waiting if r.status is RequestStatus.PREEMPTED]
    assert arrivals
    assert arrivals == sorted(arrivals)
    assert scheduler.waiting[0].status is RequestStatus.PREEMPTED


def test_only_recomputed_tokens_are_counted_as_such() -> None:
    engine = CheckedEngine(config(num_blocks=6, max_model_len=24, prefix_cache=False))
    requests = [engine.add([i] * 8, 12) for i in (1, 2)]
    engine.run()
    needed = sum(r.num_tokens - 1 for r in requests)
    counters = engine.scheduler.counters
    assert counters.computed_tokens - counters.recomputed_tokens == needed
    assert counters.recomputed_tokens > 0


def test_the_prefix_cache_makes_a_resume_cheap() -> None:
    def recomputed(prefix_cache: bool) -> int:
        engine = CheckedEngine(
            config(num_blocks=12, max_model_len=40, prefix_cache=prefix_cache, force_preempt_every=7)
        )
        engine.add(list(range(20)), 18)
        engine.run()
        return engine.scheduler.counters.recomputed_tokens

    assert 0 < recomputed(True) < recomputed(False)


def test_the_watermark_is_kept_for_those_that_run() -> None:
    engine = CheckedEngine(config(num_blocks=8, max_model_len=32, watermark_blocks=3))
    engine.add([1] * 8, 4)
    engine.add([2] * 16, 4)
    engine.step()
    assert len(engine.scheduler.running) == 1, "2 + 4 blocks would leave 2 of 8, fewer than the watermark"
    engine.run()


def test_prompt_too_long_states_both_lengths() -> None:
    engine = CheckedEngine(config())
    with pytest.raises(PromptTooLong, match=r"maximum context length is 64 tokens.*70 tokens: 60 in the prompt and 10"):
        engine.add([1] * 60, 10)
    assert not engine.scheduler.has_work


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_abort_in_any_state_frees_everything(steps: int) -> None:
    engine = CheckedEngine(config(max_batched_tokens=8))
    request = engine.add(list(range(20)), 10)
    for _ in range(steps):
        engine.step()
    assert engine.scheduler.abort(request.request_id) is request
    assert engine.scheduler.abort(request.request_id) is None
    assert request.finish_reason is FinishReason.ABORT
    assert engine.scheduler.pool.num_used == 0
    assert not engine.scheduler.has_work


def test_abort_while_the_step_runs_is_ignored_by_update() -> None:
    engine = CheckedEngine(config())
    request = engine.add([1, 2, 3], 10)
    batch = engine.scheduler.schedule(0)
    engine.scheduler.abort(request.request_id)
    assert engine.scheduler.update(batch, StepResult([5]), 0) == []
    engine.scheduler.check_integrity()


def test_a_failed_step_ends_its_requests_only() -> None:
    engine = CheckedEngine(config(max_num_seqs=1))
    first, second = engine.add([1], 5), engine.add([2], 5)
    batch = engine.scheduler.schedule(0)
    assert engine.scheduler.fail_step(batch) == [first]
    assert first.finish_reason is FinishReason.ERROR
    engine.run()
    assert second.finish_reason is FinishReason.LENGTH


def test_ends() -> None:
    scheduler = Scheduler(config())
    eos, stop, ordinary = 1, 2, 3

    def end(tokens: list[int], **params: object) -> FinishReason | None:
        request = Request(
            RequestSpec("r", [9], SamplingParams(max_tokens=3, stop_token_ids=(stop,), **params), eos_token_ids=(eos,))
        )  # type: ignore[arg-type]
        scheduler.add(request)
        for token in tokens:
            scheduler.update(scheduler.schedule(0), StepResult([token]), 0)
        reason = request.finish_reason
        scheduler.abort("r")
        return reason

    assert end([eos]) is FinishReason.STOP
    assert end([stop]) is FinishReason.STOP
    assert end([ordinary]) is None
    assert end([ordinary] * 3) is FinishReason.LENGTH
    assert end([eos], ignore_eos=True) is None
    assert end([eos], min_tokens=2) is None
    assert end([ordinary, eos], min_tokens=2) is FinishReason.STOP


def test_projected_peak_is_exact() -> None:
    """Two that go on to 3+10 and 3+4 tokens: when the short one ends both hold 7, at the end the long one holds 13."""
    engine = CheckedEngine(config())
    engine.add([1] * 3, 10)
    engine.add([2] * 3, 4)
    engine.scheduler.schedule(0)
    assert engine.scheduler.projected_peak() == max(7 + 7, 13) / (40 * 4)


def test_a_name_in_use_is_refused() -> None:
    scheduler = Scheduler(config())
    request = Request(RequestSpec("same", [1], SamplingParams(max_tokens=2)))
    scheduler.add(request)
    with pytest.raises(ValueError, match="'same' is already in use"):
        scheduler.add(Request(RequestSpec("same", [1], SamplingParams(max_tokens=2))))


@pytest.mark.parametrize(
    ("changes", "first", "reason"),
    [
        ({"max_num_seqs": 1}, 4, WaitReason.SLOTS),
        ({"num_blocks": 6, "max_model_len": 20}, 17, WaitReason.KV_BLOCKS),
        ({"max_batched_tokens": 8}, 24, WaitReason.TOKEN_BUDGET),
    ],
)
def test_a_request_has_what_it_waited_for(changes: dict[str, int], first: int, reason: WaitReason) -> None:
    engine = CheckedEngine(config(**changes))
    before, after = engine.add([1] * first, 3), engine.add([2] * 10, 3)
    engine.run()
    assert (before.waited_for, after.waited_for) == (WaitReason.STEP, reason)
    later = engine.add([3] * 3, 3)
    engine.run()
    assert later.waited_for is WaitReason.STEP
