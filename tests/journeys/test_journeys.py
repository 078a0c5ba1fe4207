"""Each journey enters as few files as it did: the bounds fall with it, and a detour is found."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.journeys.journeys import JOURNEYS, SERVER
from tests.journeys.walk import ROOT, Call, Length, Walk, list_faults, list_stays, lower_bounds, read_bounds

from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.server.generation.generation import Generation
from paternoster_engine.server.openai.answers import ChatResponse
from paternoster_gateway.proxy.replica_client import ReplicaClient
from paternoster_operator.autoscaling.windows import SignalWindows
from paternoster_operator.carry_out.applied_children import AppliedChildren

ON_THE_WAY = {
    "prompt": (Generation, "start"),
    "answer": (ChatResponse, "build_answer"),
    "manifest": (AppliedChildren, "apply"),
    "count": (SignalWindows, "observe"),
    "break": (ReplicaClient, "post"),
}
"""A method that each journey calls."""
DETOUR = "def detour(*arguments, **named):\n    return function(*arguments, **named)\n"


def detour_by(file: str, function: Callable[..., object]) -> Callable[..., object]:
    """``function``, called by one of ``file``."""
    names: dict[str, Any] = {"function": function}
    exec(compile(DETOUR, str(ROOT / file), "exec"), names)
    detour: Callable[..., object] = names["detour"]
    return detour


@pytest.mark.parametrize("name", JOURNEYS)
async def test_journey_is_as_long_as_its_bound(name: str) -> None:
    assert list_faults({name: await JOURNEYS[name].measure()}, read_bounds()) == []


@pytest.mark.parametrize("name", JOURNEYS)
async def test_detour_through_another_file_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    journey = JOURNEYS[name]
    before = await journey.measure()
    owner, method = ON_THE_WAY[name]
    monkeypatch.setattr(owner, method, detour_by(f"{journey.folders[0]}detour.py", getattr(owner, method)))
    found = list_faults({name: await journey.measure()}, {name: before})
    assert any(f" stays, at most {before.stays}: shorten" in fault for fault in found), found


def test_stays_and_returns_are_counted() -> None:
    calls = [Call(file, "f", None, "MainThread") for file in ("a", "b", "b", "a", "c")]
    assert list_stays(calls) == ["a", "b", "a", "c"]
    assert Length.measure(calls) == Length(stays=4, returns=1)


def test_bounds_only_fall() -> None:
    bounds = {"a": Length(10, 3), "b": Length(5, 2)}
    lengths = {"a": Length(9, 4), "b": Length(5, 2)}
    assert [fault.partition(": ")[2].partition(" (")[0] for fault in list_faults(lengths, bounds)] == [
        "9 stays, and the bound is 10: lower it",
        "4 returns, at most 3: shorten the journey",
    ]
    assert lower_bounds(lengths, bounds) == {"a": Length(9, 3), "b": Length(5, 2)}


def test_journey_without_its_end_is_an_error() -> None:
    walk = Walk()
    walk.calls = [Call("engine/paternoster_engine/core/scheduler.py", "Scheduler.add", None, "MainThread")]
    assert walk.cut(Scheduler.add, Scheduler.add, SERVER) == walk.calls
    with pytest.raises(LookupError, match=r"no call of Scheduler\.update"):
        walk.cut(Scheduler.add, Scheduler.update, SERVER)


async def test_prompt_passes_the_files_that_the_page_lists() -> None:
    """The page lists files that hand the request on; the others return a value to where they are called."""
    calls = await JOURNEYS["prompt"].follow()
    end = calls[-1].file
    calling = {call.caller for call in calls if call.caller != call.file} | {end}
    page = (ROOT / "docs/structure.md").read_text(encoding="utf-8")
    section = page.partition("### From the route to the scheduler\n")[2].partition("\n## ")[0]
    assert [file for file in dict.fromkeys(list_stays(calls)) if file in calling] == [
        f"engine/paternoster_engine/{path}" for path in re.findall(r"^\d+\. `(\S+)`", section, re.MULTILINE)
    ]
