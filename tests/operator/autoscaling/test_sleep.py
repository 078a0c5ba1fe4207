"""When a fleet goes to zero: ``idleSeconds`` after its last request, whatever reports were missed on the way."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.operator.autoscaling.law_inputs import policy

from paternoster_contract.stats import EngineStats
from paternoster_operator.autoscaling.autoscaler import Autoscaler, seconds_until_sleep
from paternoster_operator.autoscaling.decision import REPLICAS, Reason
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING

IDLE = 40
STALE_SECONDS = DEFAULT_TUNING.stale_seconds


def autoscaler(**to_zero: Any) -> Autoscaler:
    scale_to_zero = {"enabled": True, "idleSeconds": IDLE, **to_zero}
    return Autoscaler(policy(autoscaling={"minReplicas": 0, "maxReplicas": 2, "scaleToZero": scale_to_zero}))


@dataclass(frozen=True)
class Requests:
    """The requests of one engine: when each began and ended."""

    spans: tuple[tuple[float, float], ...] = ()

    def running(self, now: float) -> int:
        return sum(begin <= now < end for begin, end in self.spans)

    def idle(self, now: float, since: float = -1.0) -> float | None:
        """Seconds since the last one of those that began after ``since``."""
        ends = [min(end, now) for begin, end in self.spans if since < begin <= now]
        return now - max(ends) if ends else None

    def stats(self, now: float, *, tells_idle: bool = True) -> EngineStats:
        return EngineStats(
            instance="one", model="m", state="ready", started_at=0, time=now, last_tick_age_seconds=0,
            capacity=48, live_cap=48, running=self.running(now), waiting=0, kv_block_size=16, kv_blocks=100,
            kv_blocks_used=0, kv_blocks_cached=0, kv_projected_peak=0,
            requests_total=sum(begin <= now for begin, _ in self.spans),
            requests_finished_total=sum(end <= now for _, end in self.spans),
            requests_rejected_total=0, requests_preempted_total=0, preemptions_total=0, prompt_tokens_total=0,
            cached_prompt_tokens_total=0, generation_tokens_total=0, computed_tokens_total=0,
            recomputed_tokens_total=0, queue_seconds_total=0, queue_count_total=0,
            idle_seconds=self.idle(now) if tells_idle else None,
        )  # fmt: skip


def decide_replicas(fleet: Autoscaler, now: float, stats: EngineStats | None, **seen: Any) -> int:
    """One look at a fleet with one replica; how many there are to be."""
    engines = {} if stats is None else {"a": stats}
    replicas = fleet.states.targets.get(REPLICAS, 1)
    fleet.observe(Observation(now, replicas, ["a"], (), (), engines, **seen))
    return fleet.decide(now).targets[REPLICAS]


def until_sleep(fleet: Autoscaler, now: float) -> float | None:
    assert fleet.policy.replicas is not None
    return seconds_until_sleep(fleet.policy.replicas, fleet.signals, fleet.states, now)


def slept_at(fleet: Autoscaler, requests: Requests, times: list[float], missed: frozenset[int] = frozenset()) -> float:
    """The first of ``times`` at which it is to sleep; at those of ``missed`` its engine does not answer."""
    for i, now in enumerate(times):
        if decide_replicas(fleet, now, None if i in missed else requests.stats(now)) == 0:
            return now
    return float("inf")


def test_it_sleeps_at_the_first_look_idle_seconds_after_the_last_request() -> None:
    """Not after a window of measurements and a period of the replica loop besides."""
    assert slept_at(autoscaler(), Requests(((1, 3),)), [float(t) for t in range(0, 200, 5)]) == 45
    assert slept_at(autoscaler(), Requests(((1, 3),)), [0, 5, 41, 42.9, 43, 44]) == 43


def test_a_look_that_is_missed_on_the_way_begins_nothing_anew() -> None:
    times = [float(t) for t in range(0, 200, 5)]
    assert slept_at(autoscaler(), Requests(((1, 3),)), times, frozenset({5, 6})) == 45
    assert slept_at(autoscaler(), Requests(((1, 3),)), times, frozenset(range(2, 8))) == 45, "nor do many"


def test_silence_is_no_idleness() -> None:
    """While nothing reports of the fleet a request may be there."""
    times = [float(t) for t in range(0, 200, 5)]
    assert slept_at(autoscaler(), Requests(((1, 3),)), times, frozenset(range(9, 15))) == 75
    fleet = autoscaler()
    assert slept_at(fleet, Requests(((1, 3),)), times, frozenset(range(2, 40))) == float("inf")
    assert fleet.states[REPLICAS].target == 1


def test_gateways_know_of_requests_that_the_operator_never_saw() -> None:
    """The operator of this fleet starts now, and its engine is as new."""
    fleet, fresh = autoscaler(), Requests()
    assert decide_replicas(fleet, 1000.0, fresh.stats(1000.0), idle_seconds=IDLE - 1.0) == 1
    assert decide_replicas(fleet, 1001.0, fresh.stats(1001.0), idle_seconds=None) == 0, (
        "a gateway that restarted knows of none"
    )


def test_a_restarted_operator_learns_from_the_engine_when_its_last_request_was() -> None:
    served = Requests(((1, 3),))
    assert decide_replicas(autoscaler(), 42.0, served.stats(42.0)) == 1
    fleet = autoscaler()
    assert decide_replicas(fleet, 43.0, served.stats(43.0)) == 0


def test_a_fleet_without_any_request_sleeps_idle_seconds_after_it_was_first_seen() -> None:
    times = [1000.0 + t for t in range(0, 200, 5)]
    assert slept_at(autoscaler(), Requests(), times) == 1000 + IDLE


def test_a_gateway_that_says_so_keeps_it_awake_and_lets_it_sleep() -> None:
    """What engines tell may be some seconds old; what a gateway has in flight is not there yet."""
    fleet, served = autoscaler(), Requests(((1, 3),))
    decide_replicas(fleet, 5.0, served.stats(5.0), idle_seconds=2.0)
    assert decide_replicas(fleet, 44.0, served.stats(44.0), idle_seconds=0.0) == 1
    assert decide_replicas(fleet, 44.0 + IDLE - 1, served.stats(44.0 + IDLE - 1), idle_seconds=IDLE - 1.0) == 1
    assert decide_replicas(fleet, 44.0 + IDLE, None, idle_seconds=float(IDLE)) == 0, (
        "its engine was heard of a second before"
    )


@pytest.mark.parametrize("held", [1, 7])
def test_held_requests_keep_it_awake(held: int) -> None:
    fleet, served = autoscaler(), Requests(((1, 3),))
    decide_replicas(fleet, 5.0, served.stats(5.0))
    assert decide_replicas(fleet, 80.0, served.stats(80.0), held=held) == 1
    assert decide_replicas(fleet, 80.0 + IDLE - 1, served.stats(80.0 + IDLE - 1)) == 1
    assert decide_replicas(fleet, 80.0 + IDLE, served.stats(80.0 + IDLE)) == 0


def test_an_engine_that_tells_no_idleness_is_known_by_its_counters() -> None:
    """An earlier release is such; a request that came and ended between two looks counts at the second."""
    fleet, served = autoscaler(), Requests(((1, 3), (11, 12)))
    for now in (0.0, 5.0, 10.0, 15.0, 54.0):
        assert decide_replicas(fleet, now, served.stats(now, tells_idle=False)) == 1
    assert decide_replicas(fleet, 55.0, served.stats(55.0, tells_idle=False)) == 0


def test_the_next_look_is_when_it_may_sleep() -> None:
    fleet, served = autoscaler(), Requests(((1, 3),))
    decide_replicas(fleet, 5.0, served.stats(5.0))
    assert until_sleep(fleet, 5.0) == pytest.approx(38)
    decide_replicas(fleet, 43.0, served.stats(43.0))
    assert until_sleep(fleet, 43.0) is None
    always = Autoscaler(policy(autoscaling={"minReplicas": 1, "maxReplicas": 2}))
    decide_replicas(always, 5.0, served.stats(5.0))
    assert until_sleep(always, 5.0) is None


def test_what_is_only_advised_is_said_no_more_often_than_before() -> None:
    fleet = Autoscaler(
        policy(
            autoscaling={
                "mode": "Advisory", "minReplicas": 0, "maxReplicas": 2,
                "scaleToZero": {"enabled": True, "idleSeconds": IDLE},
            }
        )
    )  # fmt: skip
    served, words = Requests(((1, 3),)), []
    for now in range(0, 120, 5):
        fleet.observe(Observation(now, 1, ["a"], (), (), {"a": served.stats(now)}))
        word = fleet.decide(now).get(REPLICAS)
        if word is not None and word.reason is Reason.SCALE_TO_ZERO_IDLE:
            words.append(now)
    assert words == list(range(45, 120, 15))


SPANS = st.lists(st.tuples(st.floats(0, 150), st.floats(0.01, 60)), max_size=6)
LOOKS = st.lists(
    st.tuples(st.floats(0.5, 7), st.booleans(), st.sampled_from(["answers", "silent", "restarts"])),
    min_size=15, max_size=40,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(SPANS, LOOKS, st.integers(0, 30))
@example([(1.0, 2.0)], [(5.0, True, "silent")] * 30, 0)
def test_whatever_is_missed_it_sleeps_no_earlier_and_at_the_first_look_that_sees_it(
    drawn: list[tuple[float, float]], looks: list[tuple[float, bool, str]], operator_restarts: int
) -> None:
    """``looks``: seconds since the one before, whether the engine answers, and what the gateway does."""
    spans = [(begin, begin + length) for begin, length in drawn]
    now, gateway_since, heard = 0.0, -1.0, float("-inf")
    fleet, first_look = autoscaler(), looks[0][0]
    for i, (gap, engine_answers, gateway) in enumerate(looks):
        now += gap
        if gateway == "restarts":
            gateway_since = now
            # Its requests end with it.
            spans = [(begin, min(end, now) if begin <= now else end) for begin, end in spans]
        if i == operator_restarts and i > 0:
            fleet, first_look, heard = autoscaler(), now, float("-inf")
        requests = Requests(tuple(spans))
        idle = None if gateway == "silent" else requests.idle(now, gateway_since)
        slept = decide_replicas(fleet, now, requests.stats(now) if engine_answers else None, idle_seconds=idle) == 0
        heard = now if engine_answers else heard
        last = requests.idle(now)
        certain = engine_answers or (idle is not None and now - heard <= STALE_SECONDS)
        if slept:
            assert certain, "something has told of the fleet at this very look"
            assert requests.running(now) == 0
            assert last is None or last >= IDLE - 1e-6
            return
        if engine_answers:
            assert (now - first_look if last is None else last) < IDLE + 1e-6
