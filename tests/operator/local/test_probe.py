"""Probes, with a program that answers from a list."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from paternoster_operator.desired.deployment import build_deployment
from paternoster_operator.desired.ownership import ChildNames
from paternoster_operator.local import probe as probes
from paternoster_operator.local.probe import Probe, Probes, run_probes

FAST = Probes(
    startup=Probe("/startup", 0.05, 1, 4),
    readiness=Probe("/readiness", 0.001, 1, 2),
    liveness=Probe("/liveness", 0.001, 1, 3),
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "STARTUP_PERIOD_SECONDS", 0.001)


class Answers:
    """What each probe hears in turn; the last answer stays."""

    def __init__(self, **answers: list[bool]) -> None:
        self.probed_paths: list[str] = []
        self.heard: list[bool] = []
        self._answers: dict[str, Iterator[bool]] = {f"/{kind}": iter(list_) for kind, list_ in answers.items()}
        self._last: dict[str, bool] = defaultdict(lambda: True)

    async def check(self, probe: Probe) -> bool:
        self.probed_paths.append(probe.path)
        answer = next(self._answers.get(probe.path, iter(())), None)
        if answer is not None:
            self._last[probe.path] = answer
        return self._last[probe.path]

    async def run(self) -> str:
        async with asyncio.timeout(10):
            return await run_probes(FAST, self.check, self.heard.append)


async def test_nothing_else_is_asked_before_the_start() -> None:
    answers = Answers(startup=[False, False, True], liveness=[False])
    await answers.run()
    assert answers.probed_paths[:3] == ["/startup"] * 3
    assert "/startup" not in answers.probed_paths[3:]


async def test_a_start_that_takes_too_long_ends_it() -> None:
    answers = Answers(startup=[False])
    assert await answers.run() == "did not start within 0.2 s"
    assert set(answers.probed_paths) == {"/startup"}
    assert answers.heard == []


async def test_readiness_falls_after_failures_in_a_row_and_rises_with_one_success() -> None:
    row = [True, False, True, False, False, True]
    answers = Answers(readiness=row, liveness=[True] * 50 + [False])
    await answers.run()
    assert answers.heard == [True, False, True]


async def test_only_liveness_failures_in_a_row_count() -> None:
    answers = Answers(liveness=[False, False, True, False, False, False])
    assert await answers.run() == "3 liveness probes in a row failed"
    assert answers.probed_paths.count("/liveness") == 6


def test_a_probe_as_a_container_has_it(resource: Any) -> None:
    (container,) = build_deployment(resource(), ChildNames.from_resource(resource()), 1)["spec"]["template"]["spec"][
        "containers"
    ]
    found = Probes.from_container(container)
    assert (found.readiness.path, found.liveness.path) == ("/ready", "/health")
    assert found.startup.failure_threshold == container["startupProbe"]["failureThreshold"]
