"""What one tenant may take: places in the queue and tokens per second."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine

from paternoster_engine.core.config import SchedulerConfig, TenantLimits
from paternoster_engine.core.errors import QueueFull, TenantQueueFull, TenantRateExceeded
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams


def config(**changes: int | float | str) -> SchedulerConfig:
    return SchedulerConfig(
        max_num_seqs=1, max_batched_tokens=64, max_model_len=64, block_size=4, num_blocks=60, **changes
    )  # type: ignore[arg-type]


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
    with pytest.raises(TenantRateExceeded, match=r"tenant 'a' may use 2 tokens per second.*again in 5 s") as raised:
        engine.add([1], 2, tenant="a")
    assert raised.value.retry_after == 5
    engine.add([1], 2, tenant="b")
    engine.now += raised.value.retry_after + 0.1
    engine.add([1], 2, tenant="a")
    engine.run()


def test_sequences_of_one_call_are_taken_together() -> None:
    engine = CheckedEngine(config(tenant_tokens_per_second=2.0, tenant_token_burst=10.0))
    for _ in range(3):
        engine.add([1] * 20, 2, tenant="a")
        engine.now = 0.0
    engine.now = 1.0
    with pytest.raises(TenantRateExceeded) as raised:
        engine.add([1], 2, tenant="a")
    assert raised.value.retry_after == 24
    engine.run()


def test_a_call_that_does_not_fit_whole_changes_nothing() -> None:
    engine = CheckedEngine(config(tenant_tokens_per_second=2.0, tenant_token_burst=10.0, max_queued_requests=2))
    call = [Request(RequestSpec(f"call-{i}", [1] * 20, SamplingParams(max_tokens=2), tenant="a")) for i in range(3)]
    with pytest.raises(QueueFull):
        engine.scheduler.add(*call)
    assert engine.scheduler.counters.requests == 0
    assert sum(engine.scheduler.counters.finished.values()) == 0
    assert list(engine.scheduler.waiting) == []
    engine.add([1], 2, tenant="a")
    engine.run()


def test_output_is_charged_as_it_is_sampled() -> None:
    engine = CheckedEngine(config(tenant_tokens_per_second=0.001, tenant_token_burst=10.0))
    engine.add([1], 30, tenant="a")
    for _ in range(8):
        engine.step()
    engine.add([1], 1, tenant="a")
    engine.step()
    engine.now += 0.5
    with pytest.raises(TenantRateExceeded):
        engine.add([1], 1, tenant="a")
    engine.run()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 10), st.floats(0, 30)), min_size=5, max_size=40))
def test_over_time_a_tenant_gets_its_rate_and_one_burst(traffic: list[tuple[int, int, float]]) -> None:
    rate, burst = 3.0, 25.0
    engine = CheckedEngine(config(tenant_tokens_per_second=rate, tenant_token_burst=burst))
    admitted_tokens = last = 0
    for prompt, output, pause in traffic:
        try:
            engine.add([1] * prompt, output, tenant="a")
        except TenantRateExceeded:
            pass
        else:
            last = prompt + output
            admitted_tokens += last
        engine.run()
        engine.now += 0.001
        # Overdrawn by no more than the last one admitted.
        assert admitted_tokens <= burst + rate * engine.now + last
        engine.now += pause


def test_tenants_come_and_go_without_being_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paternoster_engine.core.admission.validation.MAX_BUCKETS", 8)
    engine = CheckedEngine(config(tenant_tokens_per_second=5.0))
    for i in range(100):
        engine.add([1], 1, tenant=f"t{i}")
        engine.run()
    quota = engine.scheduler.validation.quota
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
