"""Tenants that always have something waiting are served alike, or by their weights."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine

from paternoster_contract.queueing.service_counters import OUTPUT_TOKEN_COST, PROMPT_TOKEN_COST
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.waiting.fair_share import FairShareQueue
from paternoster_engine.sampling.beam_search import BeamParams

MAX_PROMPT, MAX_OUTPUT = 20, 16


def config(seqs: int, **changes: object) -> SchedulerConfig:
    values = {"order": "fair-share", "prefix_cache": False, "block_size": 4, "num_blocks": 400, **changes}
    return SchedulerConfig(max_num_seqs=seqs, max_batched_tokens=64, max_model_len=64, **values)  # type: ignore[arg-type]


def counters(engine: CheckedEngine) -> dict[str, float]:
    queue = engine.scheduler.lanes[0].queue
    assert isinstance(queue, FairShareQueue)
    return queue.counters.by_tenant


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("aaaabc"), st.integers(1, MAX_PROMPT), st.integers(1, MAX_OUTPUT)),
        min_size=10,
        max_size=60,
    ),
    st.integers(1, 4),
    st.sampled_from([{}, {"a": 2.0, "b": 4.0}]),
)
def test_i19_service_of_backlogged_tenants_stays_close(
    traffic: list[tuple[str, int, int]], seqs: int, weights: dict[str, float]
) -> None:
    """VTC's bound: one prompt, or what can be sampled by all that run at once."""
    engine = CheckedEngine(config(seqs, tenant_weights=weights))
    for number, (tenant, prompt, output) in enumerate(traffic):
        engine.add([number] * prompt, output, tenant=tenant)
    bound = PROMPT_TOKEN_COST * MAX_PROMPT + OUTPUT_TOKEN_COST * seqs * MAX_OUTPUT
    while engine.scheduler.has_work:
        engine.step()
        backlogged = {request.spec.tenant for request in engine.scheduler.waiting}
        service = [counters(engine)[tenant] for tenant in backlogged]
        assert not service or max(service) - min(service) <= bound


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("aaabc"), st.integers(1, MAX_PROMPT), st.integers(0, MAX_OUTPUT), st.integers(0, 3)),
        min_size=5,
        max_size=30,
    )
)
def test_the_queue_has_the_tenants_that_run(traffic: list[tuple[str, int, int, int]]) -> None:
    """Also after preemptions for memory and for shares, requests that leave, and several sequences of one."""
    engine = CheckedEngine(config(4, num_blocks=20, force_preempt_every=5))
    queue = engine.scheduler.lanes[0].queue
    assert isinstance(queue, FairShareQueue)

    def step() -> None:
        engine.step()
        running = {request.leader for request in engine.scheduler.running}
        assert queue._running == Counter(request.spec.tenant for request in running)
        assert queue.count_waiting() == len(queue.waiting)

    for number, (tenant, prompt, output, steps) in enumerate(traffic):
        beam = BeamParams(3) if output % 3 == 2 else None
        request = engine.add([number] * prompt, max(1, output), tenant=tenant, beam=beam)
        for _ in range(steps):
            step()
        if not output:
            engine.scheduler.abort(request.request_id)
    while engine.scheduler.has_work:
        step()
    assert not queue._running


def test_a_flood_does_not_keep_others_waiting() -> None:
    def waits(order: str) -> float:
        engine = CheckedEngine(config(1, order=order))
        for i in range(20):
            engine.add([i], 5, tenant="flood")
        engine.step()
        quiet = engine.add([99], 5, tenant="quiet")
        engine.run()
        assert quiet.first_scheduled is not None
        return quiet.first_scheduled - quiet.spec.arrival

    assert waits("fcfs") > 90
    assert waits("fair-share") < 10


def test_weights_are_shares() -> None:
    engine = CheckedEngine(config(1, tenant_weights={"big": 3.0}))
    for i in range(60):
        engine.add([i], 4, tenant="big")
        engine.add([i], 4, tenant="small")
    for _ in range(160):
        engine.step()
    served = [
        request for request in (o.request for o in engine.outputs if o.finish_reason) if request.spec.tenant == "big"
    ]
    ended = engine.scheduler.counters.finished.total()
    assert 0.7 * ended <= len(served) <= 0.8 * ended


def test_idle_time_is_not_saved_up() -> None:
    engine = CheckedEngine(config(1))
    for i in range(30):
        engine.add([i], 5, tenant="steady")
    for _ in range(60):
        engine.step()
    for i in range(10):
        engine.add([i], 5, tenant="late")
    for _ in range(50):
        engine.step()
    later = [o.request.spec.tenant for o in engine.outputs if o.finish_reason][12:]
    assert 3 <= later[:8].count("steady") <= 5, "the one that comes late takes turns from then on"


def test_requests_of_one_tenant_are_served_in_order_of_arrival() -> None:
    engine = CheckedEngine(config(2))
    requests = [engine.add([i], 3, tenant="one") for i in range(8)]
    engine.run()
    times = [request.first_scheduled for request in requests]
    assert times == sorted(times)


def test_tenants_come_and_go_without_being_remembered_for_ever(monkeypatch) -> None:
    monkeypatch.setattr("paternoster_contract.queueing.service_counters.MAX_COUNTERS", 8)
    engine = CheckedEngine(config(4))
    for i in range(100):
        engine.add([i], 2, tenant=f"t{i}")
        engine.step()
    engine.run()
    assert len(counters(engine)) < 20


def test_a_tenant_that_comes_is_before_the_one_whose_counter_it_is_lifted_to() -> None:
    engine = CheckedEngine(config(1))
    for number in range(4):
        engine.add([number] * 4, 1, tenant="before")
    engine.step()
    new = engine.add([9] * 4, 1, tenant="new")
    assert counters(engine)["new"] == counters(engine)["before"] > 0
    assert engine.scheduler.waiting[0] is new
    assert next(engine.scheduler.lanes[0].queue.iterate_candidates()) is new
    assert next(engine.scheduler.lanes[0].queue.first_of_each_tenant()) is new
