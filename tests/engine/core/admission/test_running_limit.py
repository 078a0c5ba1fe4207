"""How many sequences of one tenant run at once."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine

from paternoster_engine.core.config import SchedulerConfig, TenantLimits
from paternoster_engine.sampling.beam_search import BeamParams


def config(**changes: int | float | str) -> SchedulerConfig:
    return SchedulerConfig(
        max_num_seqs=4, max_batched_tokens=64, max_model_len=64, block_size=4, num_blocks=60, **changes
    )  # type: ignore[arg-type]


def running(engine: CheckedEngine, tenant: str) -> int:
    return sum(request.spec.tenant == tenant for request in engine.scheduler.running)


def test_others_pass_a_tenant_that_runs_as_much_as_it_may() -> None:
    engine = CheckedEngine(config(max_running_per_tenant=2))
    for _ in range(6):
        engine.add([1], 20, tenant="flood")
    late = engine.add([1], 2, tenant="other")
    engine.step()
    assert running(engine, "flood") == 2
    assert late in engine.scheduler.running
    engine.run()


def test_a_limit_comes_with_the_request() -> None:
    engine = CheckedEngine(config(max_running_per_tenant=1))
    for _ in range(3):
        engine.add([1], 20, tenant="three", limits=TenantLimits(max_running=3))
        engine.add([1], 20, tenant="all")
    engine.step()
    assert (running(engine, "three"), running(engine, "all")) == (3, 1)
    engine.run()


def test_a_search_wider_than_the_limit_runs_when_nothing_else_of_its_tenant_does() -> None:
    engine = CheckedEngine(config(max_running_per_tenant=2))
    engine.add([1], 5, tenant="a")
    engine.add([1, 2], 5, tenant="a", beam=BeamParams(width=3))
    last = engine.add([1], 2, tenant="a")
    engine.step()
    assert running(engine, "a") == 1
    engine.run()
    assert last.finished


TENANTS = st.sampled_from("abc")


@settings(max_examples=100, deadline=None)
@given(
    limit=st.integers(1, 4),
    order=st.sampled_from(["fcfs", "priority", "fair-share"]),
    traffic=st.lists(st.tuples(TENANTS, st.integers(1, 20), st.integers(1, 20), st.integers(0, 2)), max_size=30),
)
def test_no_tenant_runs_more_and_everybody_ends(
    limit: int, order: str, traffic: list[tuple[str, int, int, int]]
) -> None:
    engine = CheckedEngine(config(max_running_per_tenant=limit, order=order))
    requests = []
    for tenant, prompt, output, steps in traffic:
        requests.append(
            engine.add([1] * prompt, output, tenant=tenant, priority=prompt % 3 if order == "priority" else 0)
        )
        for _ in range(steps):
            engine.step()
            assert all(running(engine, each) <= limit for each in "abc")
    engine.run()
    assert all(request.finished for request in requests)
    # No place stands free beside one that may run.
    assert not engine.scheduler.waiting


def test_those_passed_over_for_their_tenant_are_deferred_and_others_wait_for_room() -> None:
    engine = CheckedEngine(config(max_running_per_tenant=1))
    for tenant in ("red", "red", "red", "blue", "green", "white", "black"):
        engine.add([1], 4, tenant=tenant)
    assert engine.scheduler.num_deferred == 0
    engine.step()
    assert (len(engine.scheduler.waiting), engine.scheduler.num_deferred) == (3, 2)
    engine.run()
    assert engine.scheduler.num_deferred == 0
