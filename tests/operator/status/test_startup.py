"""How long replicas take to start, learnt from those that were seen to."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.labels import MODEL_CONTAINER
from paternoster_contract.stats import EngineStats, StartPart
from paternoster_operator.observed import Observed
from paternoster_operator.pods.view import PodView
from paternoster_operator.report.startup import WEIGHT, StartupTimes

CREATED = "2026-01-01T00:00:00Z"


def pod(name: str, seconds: float | None = None, *, ready: bool = True) -> PodView:
    return PodView(name, "http://x", "Running", ready, False, 0, None, "", startup_seconds=seconds if ready else None)


def learnt(*looks: Iterable[PodView]) -> StartupTimes:
    times = StartupTimes()
    for pods in looks:
        times.observe(pods, {})
    return times


def test_a_start_that_was_seen_counts_once() -> None:
    ready = [pod("a", 40)]
    times = learnt([], [pod("a", ready=False)], ready, ready)
    assert times.to_document() == {"lastSeconds": 40, "averageSeconds": 40, "observedStarts": 1}


def started_stats(**seconds: float) -> EngineStats:
    return EngineStats.model_construct(start_seconds={StartPart(part): value for part, value in seconds.items()})


def test_the_parts_of_the_latest_start() -> None:
    times = StartupTimes()
    times.observe([], {})
    fetched = replace(pod("a", 40), download_seconds=20.4)
    times.observe(
        [fetched], {"a": started_stats(imports=4.6, download=1, load=9.6, warm_up=0.4), "b": started_stats(load=99)}
    )
    parts = {"download": 21, "imports": 5, "load": 10, "warmUp": 0}
    document = times.to_document()
    assert document == {"lastSeconds": 40, "averageSeconds": 40, "observedStarts": 1, "lastParts": parts}
    assert StartupTimes.from_status({"startup": document}).to_document() == document
    times.observe([fetched, pod("c", 50)], {"a": started_stats(load=1)})
    assert "lastParts" not in (times.to_document() or {}), "c's engine did not tell"


def test_the_latest_start_weighs_most() -> None:
    times = learnt([], [pod("a", 40)], [pod("a", 40), pod("b", 80)])
    assert times.average == pytest.approx(40 + WEIGHT * 40)
    assert (times.last, times.starts) == (80, 2)


def test_what_was_ready_or_there_before_the_first_look_is_no_start() -> None:
    """It may have become ready for the second time."""
    assert learnt([pod("a", 9000)]).to_document() is None
    assert learnt([pod("a", ready=False)], [pod("a", 9000)]).to_document() is None


def test_becoming_ready_again_is_no_start() -> None:
    times = learnt([], [pod("a", 40)], [pod("a", ready=False)], [pod("a", 9000)])
    assert (times.average, times.starts) == (40, 1)


def test_a_start_of_unknown_length_teaches_nothing() -> None:
    assert learnt([], [pod("a", None)]).to_document() is None


def test_a_restarted_operator_knows_what_the_status_says() -> None:
    startup = {"lastSeconds": 40, "averageSeconds": 38, "observedStarts": 7}
    assert StartupTimes.from_status({"startup": startup}).to_document() == startup
    assert StartupTimes.from_status({}).to_document() is None


@given(st.lists(st.floats(0, 3600), min_size=1, max_size=20))
def test_the_average_lies_between_the_shortest_and_the_longest(seconds: list[float]) -> None:
    times = learnt([], *([pod(str(number), each)] for number, each in enumerate(seconds)))
    assert times.average is not None
    assert min(seconds) - 1e-6 <= times.average <= max(seconds) + 1e-6
    assert times.starts == len(seconds)


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        ({"terminated": {"startedAt": "2026-01-01T00:00:05Z", "finishedAt": "2026-01-01T00:01:05Z"}}, 60),
        ({"terminated": {"startedAt": "2026-01-01T00:00:05Z"}}, 0),
        ({"running": {"startedAt": "2026-01-01T00:00:05Z"}}, 0),
    ],
    ids=["done", "no end", "running"],
)
def test_a_pod_tells_how_long_its_model_was_fetched(state: dict[str, Any], seconds: float) -> None:
    other = {"name": "other", "state": {"terminated": {"startedAt": CREATED, "finishedAt": "2026-01-01T09:00:00Z"}}}
    shown = document()
    shown["status"]["initContainerStatuses"] = [other, {"name": MODEL_CONTAINER, "state": state}]
    (view,) = Observed.from_cluster(None, [shown]).pods
    assert view.download_seconds == seconds


def document(restarts: int = 0, **ready: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", "creationTimestamp": CREATED},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", **ready}],
            "containerStatuses": [{"restartCount": restarts}],
        },
    }


@pytest.mark.parametrize(
    ("shown", "seconds"),
    [
        (document(lastTransitionTime="2026-01-01T00:01:05Z"), 65),
        (document(lastTransitionTime="2025-12-31T23:59:59Z"), 0),
        (document(lastTransitionTime="2026-01-01T00:01:05Z", status="False"), None),
        (document(), None),
        (document(restarts=1, lastTransitionTime="2026-01-01T00:01:05Z"), None),
    ],
    ids=["ready", "clocks apart", "not ready", "no time", "restarted"],
)
def test_a_pod_tells_how_long_it_took(shown: dict[str, Any], seconds: float | None) -> None:
    (view,) = Observed.from_cluster(None, [shown]).pods
    assert view.startup_seconds == seconds
