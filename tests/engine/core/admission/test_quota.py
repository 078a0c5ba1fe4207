"""What one tenant may take: places in the queue and tokens per second."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import VOCABULARY, CheckedEngine, unbatched

from paternoster_engine.core.admission.tenant_quota import TokenBucket
from paternoster_engine.core.config import SchedulerConfig, TenantLimits
from paternoster_engine.core.errors import QueueFull, TenantQueueFull, TenantRateExceeded
from paternoster_engine.core.request import Request, RequestStatus
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.sampling.beam_search import BeamParams


def config(**changes: int | float | str) -> SchedulerConfig:
    fields = {"max_num_seqs": 1, "max_batched_tokens": 64, "max_model_len": 64, "block_size": 4, "num_blocks": 80}
    return SchedulerConfig(**fields | changes)  # type: ignore[arg-type]


def test_a_tenant_fills_its_own_part_of_the_queue() -> None:
    engine = CheckedEngine(config(max_queued_per_tenant=2))
    engine.add([1], 20, tenant="a")
    engine.step()
    engine.add([1], 2, tenant="a")
    engine.add([1], 2, tenant="a")
    with pytest.raises(TenantQueueFull, match="2 requests of tenant 'a' are waiting"):
        engine.add([1], 2, tenant="a")
    engine.add([1], 2, tenant="b")
    assert engine.scheduler.counters.rejected == {"tenant_queue_full": 1}
    engine.run()


def test_who_has_used_up_its_tokens_is_told_when_it_has_some_again() -> None:
    engine = CheckedEngine(config(tenant_tokens_per_second=2.0, tenant_token_burst=10.0))
    engine.add([1] * 20, 2, tenant="a")
    with pytest.raises(TenantRateExceeded, match=r"tenant 'a' may use 2 tokens per second.*again in 6 s") as raised:
        engine.add([1], 2, tenant="a")
    assert raised.value.retry_after == 6
    engine.add([1], 2, tenant="b")
    engine.now += raised.value.retry_after + 0.1
    engine.add([1], 2, tenant="a")
    engine.run()


def _make_call(number: int, *, prompt: int, output: int) -> list[Request]:
    params = SamplingParams(max_tokens=output, ignore_eos=True)
    return [Request(RequestSpec(f"call-{i}", [1] * prompt, params, tenant="a")) for i in range(number)]


def test_sequences_of_one_call_are_taken_together() -> None:
    engine = CheckedEngine(config(tenant_tokens_per_second=2.0, tenant_token_burst=10.0))
    engine.scheduler.add(*_make_call(3, prompt=20, output=2))
    engine.now = 1.0
    with pytest.raises(TenantRateExceeded) as raised:
        engine.add([1], 2, tenant="a")
    assert raised.value.retry_after == 27
    engine.run()


def test_a_call_that_does_not_fit_whole_changes_nothing() -> None:
    engine = CheckedEngine(config(tenant_tokens_per_second=2.0, tenant_token_burst=10.0, max_queued_requests=2))
    with pytest.raises(QueueFull):
        engine.scheduler.add(*_make_call(3, prompt=20, output=2))
    assert engine.scheduler.counters.requests == 0
    assert sum(engine.scheduler.counters.finished.values()) == 0
    assert list(engine.scheduler.waiting) == []
    engine.add([1], 2, tenant="a")
    engine.run()


def test_of_a_hundred_requests_at_once_one_overdraws_the_bucket() -> None:
    """Answers are reserved before they are sampled. Whose request came first does not matter."""
    engine = CheckedEngine(config(tenant_tokens_per_second=0.01, tenant_token_burst=100.0))
    admitted = []
    for i in range(100):
        engine.now = 1 - i / 100
        with suppress(TenantRateExceeded):
            admitted.append(engine.add([1, 1], 40, tenant="a"))
    assert len(admitted) == 3
    engine.run()
    assert -30 <= _bucket_of(engine, "a").level < 0
    engine.now += 5000
    engine.add([1, 1], 40, tenant="a")
    engine.run()


def test_a_request_above_a_whole_bucket_is_admitted_alone() -> None:
    engine = CheckedEngine(config(tenant_tokens_per_second=1.0, tenant_token_burst=10.0))
    engine.add([1] * 20, 40, tenant="a")
    with pytest.raises(TenantRateExceeded):
        engine.add([1], 1, tenant="a")
    engine.run()
    engine.now += 60
    engine.add([1] * 20, 40, tenant="a")
    engine.run()


def test_what_an_answer_does_not_use_is_returned_at_its_end() -> None:
    engine = CheckedEngine(config(tenant_tokens_per_second=0.001, tenant_token_burst=59.0))
    first = engine.add([1] * 10, 50, tenant="a", stop_token_ids=tuple(range(VOCABULARY)))
    with pytest.raises(TenantRateExceeded):
        engine.add([1], 40, tenant="a")
    engine.run()
    assert len(first.output) == 1
    engine.add([1], 40, tenant="a")
    engine.run()
    assert _bucket_of(engine, "a").level == pytest.approx(59 - 11 - 41, abs=0.1)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_an_aborted_request_is_charged_what_was_computed(steps: int) -> None:
    engine = CheckedEngine(config(tenant_tokens_per_second=0.001, tenant_token_burst=60.0))
    request = engine.add([1] * 10, 20, tenant="a")
    for _ in range(steps):
        engine.step()
    engine.scheduler.abort(request.request_id)
    used = 10 + steps if steps else 0
    assert _bucket_of(engine, "a").level == pytest.approx(60 - used, abs=0.1)
    assert not engine.scheduler.lanes[0].validation.quota._reservations


def test_answers_slower_than_the_rate_are_never_refused_for_what_they_may_get() -> None:
    """The bucket gains what they take while they are sampled: however long they may get, none of it is held."""
    engine = CheckedEngine(config(tenant_tokens_per_second=4.0, tenant_token_burst=10.0, max_num_seqs=8))
    engine.add([1], 30, tenant="a")
    with pytest.raises(TenantRateExceeded):
        engine.add([1], 30, tenant="a")
    engine.run()
    engine.now += 10
    # One token a second each: four answers take what the bucket gains, and more need what it holds.
    for _ in range(4):
        engine.add([1], 30, tenant="a")
    for _ in range(20):
        engine.step()
    assert _bucket_of(engine, "a").level > 0
    engine.run()


def test_a_beam_search_is_charged_for_all_its_sequences() -> None:
    engine = CheckedEngine(config(tenant_tokens_per_second=0.001, tenant_token_burst=60.0, max_num_seqs=4))
    engine.add([1] * 4, 8, tenant="a", beam=BeamParams(width=3))
    assert (_bucket_of(engine, "a").reserved, _bucket_of(engine, "a").sequences) == (24, 3)
    engine.run()
    assert (_bucket_of(engine, "a").reserved, _bucket_of(engine, "a").sequences) == (0, 0)
    assert _bucket_of(engine, "a").level <= 60 - 4 - 8


def test_a_request_that_goes_on_here_is_charged_for_the_rest_alone() -> None:
    engine = CheckedEngine(config(tenant_tokens_per_second=0.001, tenant_token_burst=60.0))
    (request,) = _make_call(1, prompt=10, output=20)
    request.output += unbatched([1] * 10, 15, 64)
    request.status = RequestStatus.PREEMPTED
    engine.scheduler.add(request)
    assert _bucket_of(engine, "a").reserved == 5
    engine.run()
    assert len(request.output) == 20
    assert _bucket_of(engine, "a").level == pytest.approx(55, abs=0.1)


Event = tuple[int, int, float, int, bool]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 20), st.integers(1, 40), st.floats(0, 30), st.sampled_from([0, 0, 1, 30]), st.booleans()
        ),
        min_size=5,
        max_size=40,
    ),
    st.sampled_from([0.5, 3.0, 6.0]),
    st.integers(0, 5),
)
def test_in_any_window_a_tenant_gets_its_rate_one_burst_and_one_request(
    traffic: list[Event], rate: float, force_preempt_every: int
) -> None:
    """With requests at once, aborted ones, preempted ones and short answers; nothing stays reserved."""
    burst = 25.0
    limits = {"tenant_tokens_per_second": rate, "tenant_token_burst": burst}
    engine = CheckedEngine(config(**limits, max_num_seqs=4, force_preempt_every=force_preempt_every))
    requests: list[Request] = []
    samples = [(0.0, 0)]
    largest = 0
    for prompt, output, pause, steps, aborts in traffic:
        with suppress(TenantRateExceeded):
            requests.append(engine.add([1] * prompt, output, tenant="a", ignore_eos=False, stop_token_ids=(3,)))
            largest = max(largest, prompt + output)
        for _ in range(steps if engine.scheduler.has_work else 0):
            engine.step()
            samples.append((engine.now, sum(min(r.num_prompt, r.max_computed) + len(r.output) for r in requests)))
        if aborts and requests:
            engine.scheduler.abort(requests[-1].request_id)
        if not engine.scheduler.has_work:
            engine.now += pause
    engine.run()
    for i, (begin, before) in enumerate(samples):
        for end, after in samples[i:]:
            assert after - before <= burst + rate * (end - begin) + largest
    bucket = _bucket_of(engine, "a")
    assert (bucket.reserved, bucket.sequences, engine.scheduler.lanes[0].validation.quota._reservations) == (0, 0, {})
    engine.now += (largest + burst) / rate
    engine.add([1], 1, tenant="a")


def _bucket_of(engine: CheckedEngine, tenant: str) -> TokenBucket:
    return engine.scheduler.lanes[0].validation.quota._buckets[tenant]


def test_tenants_come_and_go_without_being_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paternoster_engine.core.admission.tenant_quota.MAX_BUCKETS", 8)
    engine = CheckedEngine(config(tenant_tokens_per_second=5.0))
    for i in range(100):
        engine.add([1], 1, tenant=f"t{i}")
        engine.run()
    quota = engine.scheduler.lanes[0].validation.quota
    assert quota is not None
    assert len(quota._buckets) <= 16


def _engine_with_queue(max_queued_requests: int, order: str = "fcfs") -> CheckedEngine:
    return CheckedEngine(
        SchedulerConfig(
            max_num_seqs=2,
            max_batched_tokens=64,
            max_model_len=64,
            block_size=4,
            num_blocks=40,
            order=order,
            max_queued_requests=max_queued_requests,
        )
    )


def _add_until_full(engine: CheckedEngine, tenant: str, limits: TenantLimits | None) -> int:
    for count in range(1000):
        try:
            engine.add([1, 2, 3], 2, tenant=tenant, limits=limits)
        except QueueFull:
            return count
    raise AssertionError("the queue has no bound")


@pytest.mark.parametrize(
    ("order", "limits"), [("fair-share", None), ("fcfs", TenantLimits()), ("priority", TenantLimits())]
)
def test_a_full_queue_has_an_equal_part_for_each_tenant_that_comes(order: str, limits: TenantLimits | None) -> None:
    """Who is alone may fill it; each tenant that comes finds room, and no more than its part."""
    engine = _engine_with_queue(12, order)
    assert [_add_until_full(engine, tenant, limits) for tenant in "abcd"] == [12, 6, 4, 3]
    assert _add_until_full(engine, "a", limits) == 0
    assert _add_until_full(engine, "b", limits) == 0
    assert engine.scheduler.counters.rejected == {"queue_full": 6}
    engine.run()
    assert engine.scheduler.counters.finished.total() == 25


def test_a_full_queue_is_full_for_senders_of_whom_nothing_is_known() -> None:
    """Whatever ``user`` they say."""
    engine = _engine_with_queue(12)
    assert [_add_until_full(engine, tenant, None) for tenant in ("", "b")] == [12, 0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=300), st.integers(1, 20))
def test_a_queue_of_many_tenants_is_bounded(senders: list[int], most: int) -> None:
    engine = _engine_with_queue(most, "fair-share")
    for sender in senders:
        with suppress(QueueFull):
            engine.add([1], 2, tenant=str(sender))
    assert len(engine.scheduler.waiting) <= sum(most // tenants for tenants in range(1, 11))
