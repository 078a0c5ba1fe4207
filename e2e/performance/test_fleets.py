"""What the scale test says of fleets that do not settle, and of a watch that fails."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from performance.api import ApiError, Document
from performance.fleets import Watched, progress, settled, why_unsettled

SETTLED: dict[str, Any] = {
    "observedGeneration": 2,
    "readyReplicas": 10,
    "updatedReplicas": 10,
    "conditions": [{"type": "Ready", "status": "True", "reason": "Serving"}],
}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({}, None),
        ({"observedGeneration": 1}, "the operator has not reported this generation"),
        ({"readyReplicas": 9}, "readyReplicas is 9, not 10"),
        ({"updatedReplicas": 0}, "updatedReplicas is 0, not 10"),
        (
            {"conditions": [{"type": "Ready", "status": "False", "reason": "Starting"}]},
            "condition Ready is False for Starting",
        ),
        (
            {"conditions": [*SETTLED["conditions"], {"type": "Reconciling", "status": "True", "reason": "Rollout"}]},
            "condition Reconciling is there for Rollout",
        ),
    ],
)
def test_a_fleet_is_settled_or_says_why_not(status: dict[str, Any], why: str | None) -> None:
    document = {"metadata": {"generation": 2}, "status": {**SETTLED, **status}}
    assert why_unsettled(document, 10) == why
    assert settled(document, 10) == (why is None)


class BrokenApi:
    """Its watch sends one object, and is refused afterwards."""

    async def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[tuple[str, Document]]:
        yield "ADDED", {"metadata": {"name": "first"}}
        await asyncio.sleep(0)
        raise ApiError(500, "no watch")


def test_a_watch_that_fails_ends_what_waits_for_it() -> None:
    async def wait() -> None:
        async with Watched.of(BrokenApi(), "/fleets") as watched:  # type: ignore[arg-type]
            await watched.until(lambda: len(watched.objects) == 2)

    with pytest.raises(ExceptionGroup) as error:
        asyncio.run(wait())
    assert error.group_contains(ApiError, match="no watch")


def test_progress_that_ends_in_time_out_explains_itself() -> None:
    with pytest.raises(TimeoutError, match=r"settled: 1 of 2 within 0 s\nreadyReplicas"):
        asyncio.run(progress("settled", 2, lambda: 1, 0.15, lambda: None, lambda: "readyReplicas is 0"))


def test_progress_ends_with_a_service() -> None:
    def check() -> None:
        raise RuntimeError("etcd has ended")

    with pytest.raises(RuntimeError, match="etcd has ended"):
        asyncio.run(progress("settled", 2, lambda: 1, 5, check, str))
