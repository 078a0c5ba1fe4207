"""The numbers that are compared: the same definition on both sides."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.local_fleet import Sample
from paternoster_contract.stats import EngineState, EngineStats
from paternoster_load.results import RequestEnd, RequestResult
from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.policies.fixed import FixedPolicy
from paternoster_simulator.policies.policy import Action
from paternoster_simulator.profile import Profile, load_profile
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.synthetic import generate_rows
from paternoster_traces.workload import retime_rows
from simulator.conditions import LIMITS, Conditions, requests
from simulator.measures import average, of_reality, of_simulation, ratios
from simulator.simulated import STEPS, OftenLooked, capacity, nearby, run, slowed


def stats(waiting: int = 0, finished: int = 0, preempted: int = 0, instance: str = "one") -> EngineStats:
    nothing = dict.fromkeys((name for name, field in EngineStats.model_fields.items() if field.annotation is int), 0)
    about = {
        "instance": instance, "model": "tiny", "state": EngineState.READY, "started_at": 0, "time": 1,
        "last_tick_age_seconds": 0, "capacity": 6, "live_cap": 4, "kv_block_size": 16, "kv_blocks": 8,
        "kv_projected_peak": 0, "queue_seconds_total": 0, "waiting": waiting, "requests_finished_total": finished,
        "requests_preempted_total": preempted, "preemptions_total": 2 * preempted,
    }  # fmt: skip
    return EngineStats.model_validate({**nothing, **about})


def answered(start: float, latency: float, tokens: int) -> RequestResult:
    gap = latency / tokens
    return RequestResult(0, start, 10, RequestEnd.COMPLETED, "", 200, tokens, gap, [gap] * (tokens - 1), latency)


SAMPLES = [
    Sample(9.0, (stats(), stats())),
    Sample(11.0, (stats(waiting=3), stats(waiting=1))),
    Sample(12.0, (stats(waiting=2), stats())),
    Sample(30.0, (stats(finished=3, preempted=1), stats(finished=1))),
]


def test_reality_is_measured_from_the_first_request_to_the_last_answer() -> None:
    measures = of_reality([answered(10.0, 4.0, 8), answered(12.0, 8.0, 32)], SAMPLES)
    assert measures.seconds == 10.0
    assert measures.output_tokens_per_second == 4.0
    assert measures.mean_queue_depth == 3.0, "the samples before and after do not count"
    assert measures.preemption_rate == 0.25
    assert (measures.preemptions, measures.mean_cap) == (2, 4)


def test_a_run_with_a_lost_request_or_a_restart_is_no_measurement() -> None:
    lost = RequestResult(0, 10.0, 10, error="no connection")
    with pytest.raises(ValueError, match="1 of 2 requests did not complete: no connection"):
        of_reality([answered(10.0, 4.0, 8), lost], SAMPLES)
    restarted = [*SAMPLES[:-1], Sample(30.0, (stats(instance="two"), stats()))]
    with pytest.raises(ValueError, match="started anew"):
        of_reality([answered(10.0, 4.0, 8)], restarted)
    with pytest.raises(ValueError, match="no sample"):
        of_reality([answered(15.0, 2.0, 8)], SAMPLES)


def test_ratios_are_simulated_over_real() -> None:
    real = of_reality([answered(10.0, 4.0, 8)], SAMPLES)
    assert ratios(real, real) == dict.fromkeys(("output_tokens_per_second", "mean_queue_depth", "preemption_rate"), 1)
    calm = of_reality([answered(10.0, 4.0, 8)], [*SAMPLES[:-1], Sample(30.0, (stats(finished=1), stats()))])
    assert ratios(calm, calm)["preemption_rate"] == 1
    assert ratios(real, calm)["preemption_rate"] is None


def test_the_average_of_runs_is_that_of_each_number() -> None:
    short, long = of_reality([answered(10.0, 4.0, 8)], SAMPLES), of_reality([answered(10.0, 8.0, 32)], SAMPLES)
    mean = average([short, long])
    assert (mean.seconds, mean.output_tokens_per_second, mean.requests) == (6.0, 3.0, 1)
    assert average([long, long]) == long


@given(st.floats(0.1, 2.0), st.integers(1, 6))
def test_a_policy_is_asked_at_its_own_pace(sample: float, every: int) -> None:
    class Counts:
        period_seconds = sample * every

        def __init__(self) -> None:
            self.decided_at: list[float] = []

        def decide(self, observation: Observation) -> Action:
            self.decided_at.append(observation.now)
            return Action(1, len(self.decided_at), ({"action": "Up"},))

    policy = Counts()
    often = OftenLooked(policy, sample)
    action = [often.decide(Observation(i * sample, 1, (), (), (), {})) for i in range(4 * every)]
    assert policy.decided_at == pytest.approx([i * every * sample for i in range(4)])
    assert [order.cap for order in action] == [1 + i // every for i in range(4 * every)]
    assert sum(len(order.decisions) for order in action) == 4, "a decision is told once"


def profile(conditions: Conditions) -> Profile:
    shipped = load_profile("smollm2-135m-cpu2").model_dump()
    sizes = {"kv_blocks": 68, "max_num_seqs": conditions.max_num_seqs, "max_batched_tokens": 256, "max_model_len": 1024}
    return Profile.model_validate(shipped | sizes)


@pytest.mark.parametrize("law", [False, True])
def test_the_manifest_is_a_fleet_that_never_changes_its_replicas(law: bool) -> None:
    conditions = Conditions()
    spec = conditions.resource(law=law).spec
    assert (spec.replicas, spec.autoscaling, spec.engine.prefix_cache) == (2, None, False)
    assert (spec.concurrency.mode == "Auto") is law
    assert spec.engine.max_num_seqs == conditions.engine_args.max_num_seqs
    assert conditions.engine_args.to_flags().count("--no-prefix-cache") == 1


def test_more_load_than_capacity_makes_the_fleet_wait_and_preempt() -> None:
    conditions = Conditions()
    rows = requests(generate_rows(500), 60, seed=0)
    assert all(LIMITS.clip_row(row) == row for row in rows)
    served = capacity(conditions, profile(conditions), rows, sample_seconds=0.5)
    timed = retime_rows(rows, rate=2 * served, burstiness=1, seed=0)
    fixed = run(conditions, profile(conditions), timed, law=False, sample_seconds=0.5)
    assert fixed.requests == 60
    assert fixed.mean_queue_depth > 0
    assert fixed.preemption_rate > 0
    assert fixed.mean_cap == conditions.max_num_seqs
    alike = nearby(conditions, profile(conditions), timed, law=False, sample_seconds=0.5)
    assert len(alike) == len(STEPS)
    assert fixed in alike
    assert alike[0].seconds < alike[-1].seconds, "slower steps end later"
    longer = retime_rows(requests(generate_rows(1000), 240, seed=0), rate=2 * served, burstiness=1, seed=0)
    steered = run(conditions, profile(conditions), longer, law=True, sample_seconds=0.5)
    assert steered.mean_cap < conditions.max_num_seqs, "the law lowers the cap where requests are preempted"


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 20), st.integers(0, 100))
def test_a_simulation_is_measured_to_its_last_answer(count: int, seed: int) -> None:
    conditions = Conditions()
    rows = requests(generate_rows(200, seed=seed), count, seed=seed)
    outcome = simulate_fleet(
        profile(conditions), rows, FixedPolicy(2, period_seconds=0.5), start_replicas=2, duration=1e-6
    )
    measures = of_simulation(outcome)
    tokens = sum(row.output_tokens for row in rows)
    assert measures.output_tokens_per_second * measures.seconds == pytest.approx(tokens)
    assert 0 <= measures.preemption_rate <= 1


@given(st.floats(0.1, 10))
def test_steps_take_so_many_times_as_long(times: float) -> None:
    steps = profile(Conditions()).step.model_dump()
    slow = slowed(profile(Conditions()), times)
    assert slow.step.model_dump() == pytest.approx({name: seconds * times for name, seconds in steps.items()})
    assert slow.model_dump(exclude={"step"}) == profile(Conditions()).model_dump(exclude={"step"})
