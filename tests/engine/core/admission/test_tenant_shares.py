"""Slots and blocks by tenant: who is alone may have all, and who comes gets a share at once."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine, Search, searched, unbatched
from tests.engine.core.traces import Arrival, arrivals, caps, play

from paternoster_engine.core.config import SchedulerConfig, TenantLimits
from paternoster_engine.core.request import Request
from paternoster_engine.sampling.beam_search import BeamParams, BeamSearch


def config(**changes: object) -> SchedulerConfig:
    values = {
        "max_num_seqs": 16, "max_batched_tokens": 64, "max_model_len": 60, "block_size": 4, "num_blocks": 400,
        "order": "fair-share",
    }  # fmt: skip
    return SchedulerConfig(**{**values, **changes})  # type: ignore[arg-type]


def call(engine: CheckedEngine, n: int, max_tokens: int, tenant: str) -> list[Request]:
    """The ``n`` sequences of one prompt."""
    first = engine.add([ord(tenant[0]), n, len(engine.outputs) % 50], max_tokens, tenant=tenant)
    return [first, *(engine.add(first.prompt, max_tokens, tenant=tenant, prefix_donor=first) for _ in range(n - 1))]


def running(engine: CheckedEngine) -> Counter[str]:
    return Counter(request.spec.tenant for request in engine.scheduler.running)


def test_two_calls_with_many_choices_do_not_keep_another_tenant_out() -> None:
    engine = CheckedEngine(config())
    noisy = [*call(engine, 16, 40, "noisy"), *call(engine, 16, 40, "noisy")]
    for _ in range(4):
        engine.step()
    assert running(engine) == {"noisy": 16}, "who is alone has all"
    quiet = engine.add([9, 8, 7], 5, tenant="quiet")
    batch = engine.step()
    assert quiet.output
    assert [request.spec.tenant for request in batch.preempted] == ["noisy"]
    engine.run()
    assert engine.scheduler.counters.preemptions == 1
    assert engine.scheduler.counters.requests_preempted == 0, "no sign that there is too little memory"
    for request in [*noisy, quiet]:
        assert request.output == unbatched(request.prompt, request.params.max_tokens, 60)


def test_newcomers_get_shares_and_nobody_takes_turns() -> None:
    """A third at once, as long as another tenant has twice as much; the rest as requests end."""
    engine = CheckedEngine(config())
    for tenant in ("first", "second"):
        for number in range(60):
            engine.add([ord(tenant[0]), number], 40 + 7 * number % 17, tenant=tenant)
        for _ in range(8):
            engine.step()
    assert running(engine) == {"first": 11, "second": 5}
    assert engine.scheduler.counters.preemptions == 5
    while len({request.spec.tenant for request in engine.scheduler.waiting}) == 2:
        engine.step()
    finished = engine.scheduler.counters.finished.total()
    assert engine.scheduler.counters.preemptions - 5 <= finished / 5


def test_shares_are_by_weight() -> None:
    engine = CheckedEngine(config())
    for number in range(30):
        engine.add([1, number], 50, tenant="small", limits=TenantLimits(weight=1))
    engine.step()
    for number in range(30):
        engine.add([2, number], 50, tenant="big", limits=TenantLimits(weight=3))
    for _ in range(16):
        engine.step()
    assert running(engine) == {"small": 7, "big": 9}


def test_a_tenant_alone_is_never_preempted_for_shares() -> None:
    engine = CheckedEngine(config())
    for number in range(40):
        engine.add([1, number], 20, tenant="one")
    engine.run()
    assert engine.scheduler.counters.preemptions == 0


def test_memory_is_given_up_for_a_tenant_that_has_none() -> None:
    engine = CheckedEngine(config(num_blocks=60, prefix_cache=False))
    for number in range(5):
        engine.add([number] * 40, 15, tenant="noisy")
    for _ in range(5):
        engine.step()
    quiet = engine.add([9] * 12, 5, tenant="quiet")
    for _ in range(2):
        engine.step()
    assert quiet.output
    engine.run()


def test_when_the_pool_runs_dry_the_tenant_with_the_most_pays() -> None:
    """Short requests have the least computed; they are not the ones to go."""
    engine = CheckedEngine(config(num_blocks=46, prefix_cache=False))
    noisy = [engine.add([number] * 20, 39, tenant="noisy") for number in range(6)]
    for _ in range(8):
        engine.step()
    quiet = []
    for number in range(12):
        quiet.append(engine.add([number, number], 6, tenant="quiet"))
        for _ in range(4):
            engine.step()
    engine.run()
    assert sum(request.num_preemptions for request in noisy) > 0
    assert sum(request.num_preemptions for request in quiet) == 0


def test_a_beam_search_makes_way_and_finds_the_same() -> None:
    engine = CheckedEngine(config(max_num_seqs=4))
    beam = BeamParams(4, 1.0, False)
    search = engine.add([1, 2, 3], 20, tenant="noisy", beam=beam)
    for _ in range(4):
        engine.step()
    for number in range(3):
        quiet = engine.add([5, number], 3, tenant="quiet")
        for _ in range(2):
            engine.step()
        assert quiet.output
        for _ in range(8):
            engine.step()
    engine.run()
    assert isinstance(search.branch_selector, BeamSearch)
    assert search.branch_selector.finished == searched(search.prompt, Search(search.params, beam))


@settings(max_examples=100, deadline=None)
@given(arrivals, caps, st.integers(15, 40), st.sampled_from(["recompute", "swap"]), st.booleans())
def test_nobody_loses_a_slot_to_a_tenant_that_has_as_many(
    traffic: list[Arrival], caps: list[int], num_blocks: int, preemption: str, cache: bool
) -> None:
    """And all answers are whole: ``play`` ends, and ``CheckedEngine`` compares who made way with who came."""
    engine = CheckedEngine(
        config(
            max_num_seqs=6,
            num_blocks=num_blocks,
            preemption=preemption,
            host_blocks=0 if preemption == "recompute" else 20,
            prefix_cache=cache,
        )
    )
    for arrival, request in play(engine, traffic, caps):
        if arrival.beam is None and arrival.abort_after is None and arrival.patience is None:
            assert request.output == unbatched(request.prompt, arrival.max_tokens, 60, arrival.stop_token_ids)
