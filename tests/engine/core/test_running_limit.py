"""How many sequences of one tenant run at once."""

from fake_model import Ride
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.sampling_params import BeamParams
from paternoster_engine.core.tenant import TenantLimits


def config(**changes: int | float | str) -> SchedulerConfig:
    return SchedulerConfig(4, 64, 64, 4, 60, **changes)  # type: ignore[arg-type]


def running(ride: Ride, tenant: str) -> int:
    return sum(request.tenant == tenant for request in ride.scheduler.running)


def test_others_pass_a_tenant_that_runs_as_much_as_it_may() -> None:
    ride = Ride(config(max_running_per_tenant=2))
    for _ in range(6):
        ride.add([1], 20, tenant="flood")
    late = ride.add([1], 2, tenant="other")
    ride.step()
    assert running(ride, "flood") == 2
    assert late in ride.scheduler.running
    ride.run()


def test_a_limit_comes_with_the_request() -> None:
    ride = Ride(config(max_running_per_tenant=1))
    for _ in range(3):
        ride.add([1], 20, tenant="three", limits=TenantLimits(max_running=3))
        ride.add([1], 20, tenant="all")
    ride.step()
    assert (running(ride, "three"), running(ride, "all")) == (3, 1)
    ride.run()


def test_a_search_wider_than_the_limit_runs_when_nothing_else_of_its_tenant_does() -> None:
    ride = Ride(config(max_running_per_tenant=2))
    ride.add([1], 5, tenant="a")
    ride.add([1, 2], 5, tenant="a", beam=BeamParams(width=3))
    last = ride.add([1], 2, tenant="a")
    ride.step()
    assert running(ride, "a") == 1
    ride.run()
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
    ride = Ride(config(max_running_per_tenant=limit, order=order))
    requests = []
    for tenant, prompt, output, steps in traffic:
        requests.append(
            ride.add([1] * prompt, output, tenant=tenant, priority=prompt % 3 if order == "priority" else 0)
        )
        for _ in range(steps):
            ride.step()
            assert all(running(ride, each) <= limit for each in "abc")
    ride.run()
    assert all(request.finished for request in requests)
    # No place stands free beside one that may run.
    assert not ride.scheduler.waiting
