"""Random traffic on a scheduler of any settings, played to its end."""

import os
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine

from paternoster_contract.access.identity import Lane
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.kv.kv_groups import KVGroups
from paternoster_engine.core.request import Request
from paternoster_engine.sampling.beam_search import BeamParams

MAX_LEN = 60
NUM_TRACES = int(os.environ.get("PATERNOSTER_NUM_TRACES", "240"))
"""Random traces of the widest test; a nightly run sets 10000."""

configs = st.builds(
    lambda spare, force, cache, preemption, host, seqs, reserved, pause, **rest: tight(
        SchedulerConfig(
            max_model_len=MAX_LEN,
            num_blocks=1,
            max_num_seqs=seqs,
            reserved_slots=min(reserved, seqs - 1),
            prefix_cache=cache,
            # A sequence whose blocks no cache has, such as one of windows, must get through between two.
            force_preempt_every=force if cache and force * rest["max_batched_tokens"] > MAX_LEN else 0,
            preemption=preemption,
            host_blocks=host if preemption != "recompute" else 0,
            pause_lower_classes=pause and rest["order"] == "priority" and not rest["prefill_first"],
            **rest,
        ),
        spare,
    ),
    seqs=st.sampled_from([1, 3, 4, 5, 6]),
    max_batched_tokens=st.sampled_from([4, 7, 8, 15, 40]),
    block_size=st.sampled_from([1, 3, 4, 8]),
    windows=st.sampled_from([(None,), (None,), (5,), (None, 6), (None, 9, 2), (1, 12, None)]),
    # Room for the longest request and little more.
    spare=st.sampled_from([0, 1, 3, 10, 40]),
    watermark_blocks=st.integers(0, 4),
    cache=st.booleans(),
    force=st.sampled_from([0, 0, 13]),
    await_prefix=st.booleans(),
    prefill_first=st.booleans(),
    admission=st.sampled_from(["greedy", "greedy", "no-evict"]),
    order=st.sampled_from(["fcfs", "priority", "fair-share"]),
    priority_aging=st.sampled_from([0.0, 0.0, 5.0]),
    pause=st.booleans(),
    reserved=st.sampled_from([0, 0, 1, 2]),
    tenant_weights=st.sampled_from([{}, {"a": 3.0}]),
    preemption=st.sampled_from(["recompute", "recompute", "swap"]),
    host=st.integers(1, 40),
)
"""Every combination of settings, over pools and budgets that are too small more often than not."""


@dataclass
class Arrival:
    step: int
    prompt: list[int]
    max_tokens: int
    abort_after: int | None
    priority: int
    tenant: str
    patience: float | None
    beam: BeamParams | None = None
    stop_token_ids: tuple[int, ...] = ()
    n: int = 1
    """Requests with this prompt; all but the first may fork from it."""
    lane: Lane = Lane.ONLINE


beams = st.builds(
    BeamParams,
    width=st.integers(2, 4),
    length_penalty=st.sampled_from([1.0, 0.0, -1.0, 2.0]),
    early_stopping=st.sampled_from([False, True, "never"]),
)
arrivals = st.lists(
    st.builds(
        Arrival,
        step=st.sampled_from([0, 0, 0, 1, 2, 5, 9, 20]),
        # A small alphabet and a common beginning, so that prefixes are shared.
        prompt=st.builds(
            lambda common, rest: [7] * common + rest,
            st.sampled_from([0, 8, 16, 25]),
            st.lists(st.integers(0, 2), min_size=1, max_size=14),
        ),
        max_tokens=st.sampled_from([1, 3, 8, 12, 16, 20]),
        abort_after=st.sampled_from([None, None, None, None, None, 0, 1, 4]),
        priority=st.integers(-1, 2),
        tenant=st.sampled_from(["a", "b", "c"]),
        patience=st.sampled_from([None, None, None, None, 4.0, 30.0]),
        beam=st.one_of(st.none(), st.none(), beams),
        stop_token_ids=st.sampled_from([(), (0, 7), tuple(range(12))]),
        n=st.sampled_from([1, 1, 3]),
    ),
    min_size=3,
    max_size=9,
)
lanes = st.lists(st.sampled_from(Lane), min_size=9, max_size=9)
"""Lanes of :data:`arrivals`, one each."""
caps = st.lists(st.integers(1, 6), max_size=6)


def rush(seed: int) -> tuple[SchedulerConfig, list[Arrival], list[int]]:
    """Twice as many requests as hypothesis likes to draw, most of them at once, on a pool for two or three."""
    rng = Random(seed)
    size = rng.choice([1, 2, 4, 8])
    seqs = rng.randint(2, 8)
    preemption = rng.choice(["recompute", "swap"])
    order = rng.choice(["fcfs", "priority", "fair-share"])
    prefill_first = rng.random() < 0.4
    windows = rng.choice([(None,), (None,), (7,), (None, 6), (3, None, 10)])
    config = SchedulerConfig(
        max_num_seqs=seqs,
        max_batched_tokens=rng.choice([seqs, 8, 16, 48]),
        max_model_len=MAX_LEN,
        block_size=size,
        windows=windows,
        num_blocks=1,
        watermark_blocks=rng.choice([0, 0, 2]),
        prefix_cache=rng.random() < 0.6,
        await_prefix=rng.random() < 0.7,
        prefill_first=prefill_first,
        admission=rng.choice(["greedy"] * 3 + ["no-evict"] * 2),
        order=order,
        priority_aging=rng.choice([0.0, 3.0, 20.0]),
        pause_lower_classes=order == "priority" and not prefill_first and rng.random() < 0.5,
        reserved_slots=rng.choice([0, 0, 1]),
        preemption=preemption,
        host_blocks=0 if preemption == "recompute" else rng.choice([3, 20, 60]),
        tenant_weights=rng.choice([{}, {"a": 3.0}]),
    )
    common = [rng.randint(0, 4) for _ in range(30)]
    traffic = [
        Arrival(
            step=rng.choice([0, 0, 0, 3, rng.randint(0, 60)]),
            prompt=common[: rng.choice([0, 5, 16, 30])] + [rng.randint(0, 2) for _ in range(rng.randint(1, 8))],
            max_tokens=rng.randint(1, 22),
            abort_after=rng.choice([None] * 8 + [rng.randint(0, 30)]),
            priority=rng.choice([-1, 0, 0, 0, 1, 2]),
            tenant=rng.choice("aaab"),
            patience=rng.choice([None, None, None, rng.uniform(1, 80)]),
            beam=rng.choice([None, None, BeamParams(rng.randint(2, 4), rng.choice([1.0, 0.5]), rng.random() < 0.5)]),
            stop_token_ids=rng.choice([(), tuple(range(8))]),
            n=rng.choice([1, 1, 1, 2, 4]),
        )
        for _ in range(rng.randint(8, 24))
    ]
    config = tight(config, rng.choice([0, 1, 5, 40 // size]))
    return config, traffic, [rng.randint(1, seqs) for _ in range(rng.choice([0, 0, 6]))]


def play(engine: CheckedEngine, traffic: list[Arrival], caps: list[int]) -> list[tuple[Arrival, Request]]:
    """Play ``traffic`` to its end; returns each arrival with its request.

    The live cap and the token budget change every few steps.
    """
    scheduler = engine.scheduler
    pending = sorted(traffic, key=lambda arrival: arrival.step)
    played: list[tuple[Arrival, Request]] = []
    aborts: list[tuple[int, str]] = []
    step = 0
    while pending or scheduler.has_work:
        assert step < 20_000, "work is left"
        while pending and pending[0].step <= step:
            arrival = pending.pop(0)
            donor: Request | None = None
            for _ in range(arrival.n if fits(scheduler.config, arrival) else 0):
                request = engine.add(
                    arrival.prompt,
                    arrival.max_tokens,
                    priority=arrival.priority,
                    tenant=arrival.tenant,
                    patience=arrival.patience,
                    beam=arrival.beam,
                    stop_token_ids=arrival.stop_token_ids,
                    prefix_donor=donor,
                    lane=arrival.lane,
                )
                donor = donor or request
                played.append((arrival, request))
                if arrival.abort_after is not None:
                    aborts.append((step + arrival.abort_after, request.request_id))
        for when, request_id in aborts:
            if when == step:
                scheduler.abort(request_id)
        if caps and step % 5 == 0:
            scheduler.live_cap = min(caps[step // 5 % len(caps)], scheduler.config.max_num_seqs)
        # Where somebody is preempted all the time anyway, a small budget would never get a prompt through.
        if caps and step % 7 == 0 and not scheduler.config.force_preempt_every:
            scheduler.token_budget = 1 + 5 * (step // 7) % scheduler.config.max_batched_tokens
        engine.step()
        step += 1
    return played


def fits(config: SchedulerConfig, arrival: Arrival) -> bool:
    """Whether all its beams can ever run together; without any it always can."""
    if arrival.beam is None:
        return True
    size, width = config.block_size, arrival.beam.width
    shared = len(arrival.prompt) // size
    longest = -(-(len(arrival.prompt) + arrival.max_tokens - 1) // size)
    blocks = len(config.windows) * (shared + width * (longest - shared))
    return width <= config.max_num_seqs and blocks <= config.num_blocks


def tight(config: SchedulerConfig, spare: int) -> SchedulerConfig:
    """With room for the longest request and ``spare`` blocks."""
    return config.replace(num_blocks=KVGroups(config).count_sequence_blocks(MAX_LEN) + spare)
