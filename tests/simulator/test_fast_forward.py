"""Fast-forwarding changes nothing: the same traffic on the same engine ends the same to the tick, with and without."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.errors import AdmissionError
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_simulator.cost import StepCost
from paternoster_simulator.prompts import filler_tokens, own_token
from paternoster_simulator.replica.fast_forward import can_fast_forward
from paternoster_simulator.replica.replica import SimulatedReplica

MAX_LEN = 80

configs = st.builds(
    lambda seqs, budget, size, blocks, watermark, queued, cache: SchedulerConfig(
        max_num_seqs=seqs,
        max_batched_tokens=budget,
        max_model_len=MAX_LEN,
        block_size=size,
        num_blocks=max(blocks, -(-MAX_LEN // size)),
        watermark_blocks=watermark,
        max_queued_requests=queued,
        prefix_cache=cache,
    ),
    seqs=st.integers(1, 8),
    budget=st.integers(2, 60),
    size=st.integers(1, 8),
    blocks=st.integers(8, 120),
    watermark=st.integers(0, 4),
    queued=st.integers(1, 10),
    cache=st.booleans(),
)
costs = st.builds(
    StepCost,
    fixed=st.integers(1, 50),
    prefill_token=st.integers(0, 5),
    decode_sequence=st.integers(0, 5),
    kv_token=st.integers(0, 2),
    prefill_pair=st.integers(0, 1),
)


@dataclass
class Arrival:
    at: int
    prompt: int
    common: int
    """Tokens at the beginning that all requests share."""
    output: int


@dataclass
class Glance:
    at: int


@dataclass
class NewCap:
    at: int
    cap: int


@dataclass
class NewBudget:
    at: int
    tokens: int


@dataclass
class NewQueueLimit:
    at: int
    milliseconds: int


events = st.lists(
    st.one_of(
        st.builds(
            Arrival,
            at=st.integers(0, 1500),
            prompt=st.integers(1, 40),
            common=st.integers(0, 30),
            output=st.integers(1, 40),
        ),
        st.builds(
            Arrival, at=st.integers(0, 1500), prompt=st.integers(1, 6), common=st.just(0), output=st.integers(20, 40)
        ),
        st.builds(Glance, at=st.integers(0, 2500)),
        st.builds(NewCap, at=st.integers(0, 2500), cap=st.integers(1, 8)),
        st.builds(NewBudget, at=st.integers(0, 2500), tokens=st.integers(1, 60)),
        st.builds(NewQueueLimit, at=st.integers(0, 500), milliseconds=st.sampled_from([0, 1, 20, 100])),
    ),
    min_size=1,
    max_size=40,
)


def drive(config: SchedulerConfig, cost: StepCost, happenings: list[Any], *, fast_forward: bool) -> dict[str, Any]:
    """Everything that can be seen of one engine under one list of events."""
    replica = SimulatedReplica("engine", config, cost, fast_forward=fast_forward)
    # Ticks are milliseconds here, so that limits of the queue's time are of the size of waits.
    replica.scheduler.queue_wait._ticks_per_second = 1000
    requests: list[Request] = []
    finished: list[tuple[int, list[str]]] = []
    seen = []

    def until(time: int) -> None:
        while replica.end is not None and replica.end <= time:
            now = replica.end
            if done := replica.advance(now):
                finished.append((now, [request.request_id for request in done]))

    for number, event in enumerate(sorted(happenings, key=lambda event: event.at)):
        until(event.at)
        match event:
            case Arrival():
                own = max(0, event.prompt - event.common)
                tokens = [7] * (event.prompt - own) + [own_token(number)] * own
                request = Request(
                    RequestSpec(
                        str(number),
                        tokens if config.prefix_cache else filler_tokens(event.prompt),
                        SamplingParams(max_tokens=event.output, ignore_eos=True),
                        arrival=event.at,
                        seed=own_token(number),
                    )
                )
                try:
                    replica.add(request, event.at)
                except AdmissionError as error:
                    seen.append((event.at, error.reason))
                else:
                    requests.append(request)
            case Glance():
                seen.append((event.at, replica.build_stats(event.at).model_dump(), states(requests)))
            case NewCap():
                replica.set_cap(event.cap, event.at)
            case NewBudget():
                replica.set_token_budget(event.tokens)
            case NewQueueLimit():
                replica.scheduler.queue_wait.max_milliseconds = event.milliseconds
    until(10**9)
    assert replica.end is None
    assert not replica.list_unfinished()
    return {"finished": finished, "seen": seen, "counters": replica.scheduler.counters, "requests": states(requests)}


def states(requests: list[Request]) -> list[tuple[Any, ...]]:
    return [
        (
            r.request_id, r.status, r.finish_reason, r.num_computed, r.num_cached, r.max_computed, r.num_preemptions,
            r.output.copy(), len(r.block_table.block_ids), r.first_scheduled, r.first_token, r.last_token,
        )
        for r in requests
    ]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(configs, costs, events)
def test_fast_forwarded_as_step_by_step(config: SchedulerConfig, cost: StepCost, happenings: list[Any]) -> None:
    assert can_fast_forward(config)
    assert drive(config, cost, happenings, fast_forward=True) == drive(config, cost, happenings, fast_forward=False)


@settings(max_examples=150, deadline=None)
@given(costs, st.lists(st.tuples(st.integers(0, 60), st.integers(20, 40)), min_size=4, max_size=12), st.integers(1, 8))
def test_fast_forwarded_as_step_by_step_where_the_pool_is_short(
    cost: StepCost, arrivals: list[tuple[int, int]], size: int
) -> None:
    """Many long answers at once in a small pool: growth preempts, again and again."""
    config = SchedulerConfig(
        max_num_seqs=12, max_batched_tokens=64, max_model_len=MAX_LEN, block_size=size,
        num_blocks=-(-2 * MAX_LEN // size), prefix_cache=False,
    )  # fmt: skip
    happenings = [Arrival(at, 5, 0, output) for at, output in arrivals]
    assert drive(config, cost, happenings, fast_forward=True) == drive(config, cost, happenings, fast_forward=False)


def test_a_short_pool_preempts_and_steps_are_fast_forwarded() -> None:
    """The two properties above look at what they should: preemptions happen, and steps are taken together."""
    config = SchedulerConfig(
        max_num_seqs=12, max_batched_tokens=64, max_model_len=MAX_LEN, block_size=4, num_blocks=40, prefix_cache=False
    )
    happenings = [Arrival(0, 5, 0, 40) for _ in range(8)]
    assert drive(config, StepCost(10), happenings, fast_forward=True)["counters"].preemptions > 0
    replica = SimulatedReplica("engine", config, StepCost(10))
    replica.add(Request(RequestSpec("a", filler_tokens(5), SamplingParams(max_tokens=40))), 0)
    ends = []
    while replica.end is not None:
        ends.append(replica.end)
        replica.advance(replica.end)
    assert ends == [10, 400], "the prompt's step, then all others at once"


def test_a_scheduler_with_other_settings_takes_every_step() -> None:
    config = SchedulerConfig(
        max_num_seqs=2, max_batched_tokens=64, max_model_len=MAX_LEN, block_size=4, num_blocks=40, order="priority"
    )
    assert not can_fast_forward(config)
