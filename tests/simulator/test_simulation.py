"""Whole fleets: nothing is lost without a reason, everything repeats, and faults do what they say."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulator.small_profile import SMALL

from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.arrivals import constant_rate, generate_requests
from paternoster_simulator.failures import ClockJumps, EngineRestarts, Fault, MetricsBlackout, ReplicaDies, SlowStartups
from paternoster_simulator.outcome.outcome import SimulationOutcome
from paternoster_simulator.outcome.records import RequestOutcome
from paternoster_simulator.policies.fixed import FixedPolicy
from paternoster_simulator.policies.policy import Action
from paternoster_simulator.profile import Profile
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.trace import TraceRow
from paternoster_traces.workload import Limits


class Script:
    """A policy that follows a plan and keeps what it saw."""

    period_seconds = 5.0

    def __init__(self, plan: Callable[[Observation], Action]) -> None:
        self.observations: list[Observation] = []
        self._plan = plan

    def decide(self, observation: Observation) -> Action:
        self.observations.append(observation)
        return self._plan(observation)


def traffic(count: int, every: float, prompt: int = 50, output: int = 20) -> list[TraceRow]:
    return [TraceRow(i * every, prompt, output) for i in range(count)]


def run(
    rows: Sequence[TraceRow],
    policy: FixedPolicy | Script,
    *,
    start: int = 1,
    duration: float = 60.0,
    faults: Sequence[Fault] = (),
    seed: int = 0,
    profile: Profile = SMALL,
    fleet: FleetSettings | None = None,
) -> SimulationOutcome:
    return simulate_fleet(
        profile, rows, policy, start_replicas=start, duration=duration, seed=seed, faults=faults, settings=fleet
    )


def test_one_request_takes_what_its_steps_take() -> None:
    outcome = run([TraceRow(1.0, 50, 3)], FixedPolicy(1))
    prefill = 0.02 + 50 * 1e-4 + 50e-6
    decodes = 2 * (0.02 + 1e-3) + (51 + 52) * 1e-6
    assert outcome.finished == 1
    assert outcome.records.ttft[0] == pytest.approx(prefill, rel=1e-6)
    assert outcome.records.end_to_end[0] == pytest.approx(prefill + decodes, rel=1e-6)
    assert outcome.records.itl[0] == pytest.approx(decodes / 2, rel=1e-6)
    assert outcome.totals.generation_tokens == 3
    assert outcome.totals.computed_tokens == 52
    assert outcome.slo_attainment == 1.0
    assert outcome.gpu_hours == pytest.approx(2 * 60 / 3600)
    assert outcome.cost == pytest.approx(1.5 * 2 * 60 / 3600)


faults_strategy = st.lists(
    st.one_of(
        st.builds(ReplicaDies, at=st.floats(0, 40), count=st.integers(1, 2)),
        st.builds(EngineRestarts, at=st.floats(0, 40), count=st.integers(1, 2)),
        st.builds(MetricsBlackout, at=st.floats(0, 40), seconds=st.floats(1, 30), share=st.sampled_from([0.5, 1.0])),
        st.builds(ClockJumps, at=st.floats(0, 40), seconds=st.floats(-100, 100)),
        st.builds(SlowStartups, at=st.floats(0, 40), seconds=st.floats(1, 30)),
    ),
    max_size=4,
)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 2**31),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 16)), min_size=1, max_size=8),
    faults_strategy,
    st.floats(0.5, 12),
)
def test_every_request_has_one_end_and_leaps_change_nothing(
    seed: int, plan: list[tuple[int, int]], faults: list[Fault], rate: float
) -> None:
    def act(observation: Observation) -> Action:
        replicas, cap = plan[observation.gateway_requests["gateway"] % len(plan)]
        return Action(replicas, cap)

    def go(*, fast_forward: bool) -> SimulationOutcome:
        limits = Limits(max_prompt=300, max_output=150)
        rows = list(generate_requests(constant_rate(rate), duration=45, seed=seed, limits=limits))
        return run(
            rows, Script(act), start=2, duration=45, faults=faults, seed=seed,
            fleet=FleetSettings(
                fast_forward=fast_forward, hold_timeout_seconds=20, drain_timeout_seconds=10, max_queued_requests=8
            ),
        )  # fmt: skip

    outcome = go(fast_forward=True)
    came = sum(1 for _ in generate_requests(constant_rate(rate), duration=45, seed=seed))
    assert outcome.requests == came
    assert outcome.finished + outcome.lost == came
    assert outcome.totals.finished == outcome.finished
    done = outcome.records.outcome == RequestOutcome.FINISHED
    assert np.all(outcome.records.end_to_end[done] >= outcome.records.ttft[done])
    assert np.all(outcome.records.ttft[done] > 0)
    assert outcome.to_json() == go(fast_forward=True).to_json()
    assert outcome.to_json() == go(fast_forward=False).to_json()


@pytest.mark.parametrize("fast_forward", [True, False])
def test_a_dead_replica_is_replaced_and_its_streams_go_on_elsewhere(fast_forward: bool) -> None:
    policy = Script(lambda observation: Action(2))
    fleet = FleetSettings(fast_forward=fast_forward)
    rows = traffic(100, 0.2)
    outcome = run(rows, policy, start=2, faults=[ReplicaDies(at=10.05)], fleet=fleet)
    assert outcome.lost == 0
    assert outcome.totals.generation_tokens == sum(row.output_tokens for row in rows), "none twice, none missing"
    assert outcome.totals.computed_tokens > 100 * (50 + 20 - 1), "some were computed again"
    assert outcome.totals.finished == outcome.finished == 100
    by_time = {observation.now: observation for observation in policy.observations}
    assert (len(by_time[15.0].serving), len(by_time[15.0].pending)) == (1, 1)
    assert len(by_time[25.0].serving) == 2
    assert policy.observations[-1].startup_seconds == pytest.approx(10.0)


def test_a_request_without_a_token_is_retried_elsewhere() -> None:
    slow = SMALL.model_copy(update={"step": SMALL.step.model_copy(update={"fixed_seconds": 5.0})})
    outcome = run([TraceRow(1.0, 50, 1), TraceRow(1.0, 50, 1)], FixedPolicy(2), start=2, profile=slow,
                  faults=[ReplicaDies(at=3.0)])  # fmt: skip
    assert outcome.finished == 2
    assert sorted(outcome.records.ttft)[1] > 7


def test_a_restarted_engine_counts_anew_in_the_same_pod() -> None:
    policy = Script(lambda observation: Action(1))
    run(traffic(200, 0.2), policy, faults=[EngineRestarts(at=12.0)], duration=60)
    before, after = (
        observation.engines["pod-00001"] for observation in (policy.observations[2], policy.observations[4])
    )
    assert before.instance != after.instance
    assert after.requests_finished_total < before.requests_finished_total
    assert policy.observations[3].pending == ("pod-00001",), "loading and warming take 7 s"


def test_in_a_blackout_engines_serve_and_say_nothing() -> None:
    policy = Script(lambda observation: Action(2))
    outcome = run(traffic(200, 0.2), policy, start=2, faults=[MetricsBlackout(at=11, seconds=10)])
    silent = [observation.now for observation in policy.observations if not observation.engines]
    assert silent == [15.0, 20.0]
    assert all(len(observation.serving) == 2 for observation in policy.observations)
    assert outcome.lost == 0


def test_a_partial_blackout_leaves_the_others() -> None:
    policy = Script(lambda observation: Action(4))
    run(traffic(10, 1), policy, start=4, faults=[MetricsBlackout(at=11, seconds=10, share=0.5)])
    assert [len(observation.engines) for observation in policy.observations[:6]] == [4, 4, 4, 2, 2, 4]


def test_the_policys_clock_jumps() -> None:
    policy = Script(lambda observation: Action(1))
    run([], policy, faults=[ClockJumps(at=7, seconds=-100)], duration=20)
    assert [observation.now for observation in policy.observations] == [0, 5, -90, -85, -80]


def test_slow_startups_are_slow() -> None:
    policy = Script(lambda observation: Action(2))
    run([], policy, faults=[SlowStartups(at=0, seconds=60, factor=3)], duration=60)
    assert policy.observations[-1].startup_seconds == pytest.approx(30.0)


def test_pods_that_do_not_serve_go_first_and_a_drained_pod_finishes() -> None:
    steps = iter([Action(3), Action(2), Action(1), *[Action(1)] * 50])
    policy = Script(lambda observation: next(steps))
    fleet = FleetSettings(hand_over=False)
    outcome = run(traffic(100, 0.1, output=150), policy, start=2, duration=30, fleet=fleet)
    observations = policy.observations
    assert (len(observations[1].serving), len(observations[1].pending)) == (2, 1)
    assert (len(observations[2].serving), len(observations[2].pending)) == (2, 0)
    assert (len(observations[3].serving), len(observations[3].draining)) == (1, 1)
    assert outcome.lost == 0
    assert outcome.scale_events == 3


@pytest.mark.parametrize("fast_forward", [True, False])
def test_a_drained_pod_hands_its_requests_over_with_their_tokens(fast_forward: bool) -> None:
    steps = iter([Action(2), Action(1), *[Action(1)] * 200])
    policy = Script(lambda observation: next(steps))
    fleet = FleetSettings(drain_timeout_seconds=1, fast_forward=fast_forward)
    outcome = run(traffic(20, 0.1, output=400), policy, start=2, duration=30, fleet=fleet)
    assert not policy.observations[2].draining, "it is empty within a period of 5 s"
    assert outcome.lost == 0
    assert outcome.totals.generation_tokens == 20 * 400
    assert outcome.totals.computed_tokens > 20 * 400 + outcome.records.prompt.sum(), "some were computed again"
    assert outcome.totals.finished == outcome.finished == 20


def test_what_a_drain_does_not_finish_in_time_goes_on_elsewhere() -> None:
    steps = iter([Action(2), Action(1), *[Action(1)] * 200])
    outcome = run(
        traffic(20, 0.1, output=400), Script(lambda observation: next(steps)), start=2, duration=30,
        fleet=FleetSettings(drain_timeout_seconds=1, hand_over=False),
    )  # fmt: skip
    assert outcome.lost == 0
    assert outcome.totals.generation_tokens == 20 * 400
    assert outcome.totals.computed_tokens > 20 * 400 + outcome.records.prompt.sum(), "some were computed again"


def test_a_stream_without_a_replica_to_go_on_at_is_broken_off() -> None:
    fleet = FleetSettings(hold_timeout_seconds=2)
    outcome = run(traffic(1, 1, output=400), FixedPolicy(1), start=1, faults=[ReplicaDies(at=2)], fleet=fleet)
    assert list(outcome.records.outcome) == [RequestOutcome.HELD_TOO_LONG]
    assert 0 < outcome.records.output[0] < 400


def test_requests_are_held_until_a_replica_is_ready() -> None:
    outcome = run(traffic(10, 0.5), Script(lambda observation: Action(1)), start=0)
    assert outcome.finished == 10
    assert outcome.records.ttft.max() > 9, "a start takes 10 s"


def test_requests_are_held_only_so_many_and_so_long() -> None:
    outcome = run(
        traffic(10, 0.5), Script(lambda observation: Action(1)), start=0,
        fleet=FleetSettings(max_held_requests=3, hold_timeout_seconds=9.2),
    )  # fmt: skip
    assert set(outcome.records.outcome) == {RequestOutcome.HELD_TOO_LONG, RequestOutcome.FINISHED}
    assert outcome.finished < 10


def test_a_full_queue_is_retried_elsewhere_and_then_refused() -> None:
    rows = [TraceRow(1.0 + i / 1000, 50, 100) for i in range(60)]
    fleet = FleetSettings(max_num_seqs=2, max_queued_requests=3)
    outcome = run(rows, FixedPolicy(2), start=2, fleet=fleet)
    refused = np.count_nonzero(outcome.records.outcome == RequestOutcome.HELD_TOO_LONG) + np.count_nonzero(
        outcome.records.outcome == RequestOutcome.REFUSED
    )
    assert refused == outcome.lost > 0
    assert outcome.finished >= 8


def test_the_cap_reaches_engines_at_the_look() -> None:
    policy = Script(lambda observation: Action(1, 3))
    run(traffic(200, 0.05, output=100), policy, duration=20)
    assert [observation.engines["pod-00001"].live_cap for observation in policy.observations[:3]] == [16, 3, 3]
    assert max(observation.engines["pod-00001"].running for observation in policy.observations[1:]) <= 3


def test_preemptions_are_counted_once_a_request() -> None:
    outcome = run([TraceRow(0.0, 100, 400)] * 8, FixedPolicy(1), duration=10)
    assert outcome.finished == 8
    hit = outcome.records.preemptions > 0
    assert outcome.totals.preempted == np.count_nonzero(hit) > 0
    assert outcome.totals.preemptions == outcome.records.preemptions.sum()
    assert outcome.preemption_rate == np.count_nonzero(hit) / 8
    assert outcome.totals.recomputed_tokens > 0


def test_shared_prefixes_are_found() -> None:
    rows = [TraceRow(float(i), 500, 5, (1,)) for i in range(5)]
    shared = run(rows, FixedPolicy(1), fleet=FleetSettings(prefix_cache=True))
    alone = run(rows, FixedPolicy(1))
    assert shared.totals.cached_prompt_tokens == 4 * ((500 - 1) // 16 * 16)
    assert shared.totals.computed_tokens < alone.totals.computed_tokens


@pytest.mark.parametrize("published", [True, False])
def test_prompts_find_what_they_share_whether_engines_publish_it_or_not(published: bool) -> None:
    profile = SMALL.model_copy(update={"max_model_len": 2048, "kv_blocks": 600})
    # Each of four turns goes to another one of three replicas by load.
    rows = [TraceRow(4.0 * i, 1600, 5, tuple(range(10 * (i % 4), 10 * (i % 4) + 3))) for i in range(12)]
    fleet = FleetSettings(prefix_cache=True, prefix_routing=True, published_caches=published)
    found = run(rows, FixedPolicy(3), start=3, profile=profile, fleet=fleet).totals.cached_prompt_tokens
    by_load = replace(fleet, prefix_routing=False)
    assert found == 8 * 3 * 512
    assert run(rows, FixedPolicy(3), start=3, profile=profile, fleet=by_load).totals.cached_prompt_tokens == 0


@pytest.mark.parametrize(("name", "value"), [("duration", 0.0), ("start_replicas", -1)])
def test_what_cannot_be_simulated_is_refused(name: str, value: float) -> None:
    arguments = {"start_replicas": 1, "duration": 10.0, name: value}
    with pytest.raises(ValueError, match=f"{name} is {value}: must be"):
        simulate_fleet(SMALL, [], FixedPolicy(1), **arguments)  # type: ignore[arg-type]


def test_the_garbage_collector_is_left_as_it_was() -> None:
    before, within = gc.get_threshold(), []

    def fail(observation: Observation) -> Action:
        within.append(gc.get_threshold())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run([], Script(fail))
    assert within != [before]
    assert gc.get_threshold() == before
