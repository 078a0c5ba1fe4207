"""What the real pair is given, and how its numbers are read."""

import argparse
import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from control.real_pair import AUTO, Load, Replicas, Turn, may_grow, order_turns, ratios, read_record, scarce
from paternoster_operator.api.v1alpha1 import ConcurrencyMode, LLMDeployment

ARGS = argparse.Namespace(memory="24Mi", limit=20.0)


def test_turns_differ_in_the_cap_alone() -> None:
    fixed, auto = (LLMDeployment.model_validate(scarce(cap, ARGS)).spec for cap in ("8", AUTO))
    assert (fixed.concurrency.mode, fixed.concurrency.initial) == (ConcurrencyMode.FIXED, 8)
    assert auto.concurrency.mode is ConcurrencyMode.AUTO
    steered = fixed.concurrency.model_copy(update={"mode": ConcurrencyMode.AUTO, "initial": None})
    assert fixed.model_copy(update={"concurrency": steered}) == auto


def test_no_cap_has_the_same_place_in_every_round() -> None:
    turns = order_turns(["16", "8", AUTO], 3)
    rounds = [turns[i : i + 3] for i in (0, 3, 6)]
    assert rounds == [["16", "8", AUTO], ["8", AUTO, "16"], [AUTO, "16", "8"]]


async def test_a_turn_begins_with_nothing_of_the_turn_before() -> None:
    """Draining sends no more and lasts until the last answer; then the same clients go on."""
    sent: list[int] = []
    answer = asyncio.Event()

    async def send(request: Any) -> str:
        sent.append(request.index)
        await answer.wait()
        return "answered"

    client, prompts = SimpleNamespace(send=send), SimpleNamespace(make_prompt=lambda number, tokens: [number] * tokens)
    load = Load(cast("Any", client), cast("Any", prompts))
    clients = [asyncio.create_task(load.client()) for _ in range(3)]
    await asyncio.sleep(0)
    drained = asyncio.create_task(load.drain())
    await asyncio.sleep(0.1)
    assert (len(sent), drained.done()) == (3, False), "three requests are not answered yet"
    answer.set()
    await drained
    assert (len(sent), len(load.results)) == (3, 3), "none was sent while the fleet drained"
    answer.clear()
    load.resume()
    await asyncio.sleep(0.1)
    assert len(sent) == 6
    for task in clients:
        task.cancel()
    await asyncio.gather(*clients, return_exceptions=True)


def test_the_fleet_of_the_blackout_may_grow() -> None:
    spec = LLMDeployment.model_validate(may_grow()).spec
    assert spec.autoscaling is not None
    assert (spec.autoscaling.min_replicas, spec.autoscaling.max_replicas) == (2, 4)


def test_each_round_is_compared_with_itself() -> None:
    def turn(cap: str, in_time: float) -> Turn:
        return Turn(cap, 9, in_time, 1.0, 50.0, 100.0, 0.5, 0.2, (16, 16))

    turns = [turn("16", 0.8), turn(AUTO, 0.8), turn("16", 0.4), turn(AUTO, 0.2), turn("16", 0.2), turn(AUTO, 0.3)]
    assert ratios(turns)["16"]["in_time"] == 1.0, "the median of 1, 0.5 and 1.5"


def test_replicas_are_read_apart_before_and_after_a_moment(tmp_path: Path) -> None:
    made = {"loop": "Replicas", "from": 2, "to": 4, "message": "m", "applied": True}
    lines = [(1.0, 2, []), (2.0, 4, [made]), (3.0, 4, []), (4.0, 3, [made | {"applied": False}])]
    record = tmp_path / "run.jsonl"
    record.write_text("".join(
        json.dumps({"time": time, "deployments": [{"desired": desired, "decisions": decisions}]}) + "\n"
        for time, desired, decisions in lines
    ))  # fmt: skip
    before, wanted, decisions = read_record(record, 3.0)
    assert (before, wanted, decisions) == ((2, 4), (4, 3), ("Replicas 2->4: m",))
    assert not Replicas(60, 9, before, wanted, decisions, 1, 0).rose
    assert Replicas(60, 9, before, (2, 4), decisions, 1, 0).rose
