"""``paternoster get``: the CRD's printer columns, from an operator's HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from paternoster_operator.api.columns import COLUMNS
from paternoster_operator.terminal.table import format_age

OBJECT: dict[str, Any] = {
    "apiVersion": "paternoster.dev/v1alpha1",
    "kind": "LLMDeployment",
    "metadata": {"name": "ride", "namespace": "lifts", "creationTimestamp": "2026-11-20T00:00:00Z"},
    "spec": {"autoscaling": {"mode": "Auto"}},
    "status": {
        "conditions": [
            {"type": "MetricsFresh", "status": "True", "reason": "AllPodsReporting"},
            {"type": "Ready", "status": "True", "reason": "MinimumReplicasAvailable"},
        ],
        "readyReplicas": 2,
        "desiredReplicas": 3,
        "concurrency": {"target": 12},
        "load": {"generationTokensPerSecond": 0, "waitingRequests": 5},
        "servedModel": "smol",
    },
}
BARE = {**OBJECT, "metadata": {**OBJECT["metadata"], "name": "new", "namespace": "others"}, "status": {}}


@pytest.fixture
async def server(serve_objects: Any) -> AsyncIterator[str]:
    """An operator that has two LLMDeployments, and an API server that has the same."""
    async with serve_objects(OBJECT, BARE) as url:
        yield url


@pytest.fixture
def get(call_paternoster: Any) -> Callable[..., Awaitable[CompletedProcess[str]]]:
    return lambda *words: asyncio.to_thread(call_paternoster, "get", *words)


@pytest.fixture
def get_by_process(paternoster: Any) -> Callable[..., Awaitable[CompletedProcess[str]]]:
    return lambda *words: asyncio.to_thread(paternoster, "get", *words)


async def test_the_columns(server: str, get: Any) -> None:
    done = await get("--server", server)
    title, ride, new = done.stdout.splitlines()
    assert title.split() == ["NAME", "READY", "REASON", "REPLICAS", "DESIRED", "SEQS", "TOK/S", "AGE"]
    assert ride.split()[:-1] == ["ride", "True", "MinimumReplicasAvailable", "2", "3", "12", "0"]
    assert new.split()[:-1] == ["new"]
    wide = (await get("--server", server, "-o", "wide")).stdout.splitlines()
    assert [title.lower() for title in wide[0].split()[1:]] == [column.name.lower() for column in COLUMNS]
    assert {"smol", "5", "Auto"} <= set(wide[1].split())


async def test_a_cluster(server: str, get_by_process: Any, write_kubeconfig: Callable[[str], None]) -> None:
    """Without a 'paternoster up' on this machine the kubeconfig's context is read, in its own namespace."""
    write_kubeconfig(server)
    title, ride = (await get_by_process()).stdout.splitlines()
    assert title.split()[:3] == ["NAME", "READY", "REASON"]
    assert ride.split()[:-1] == ["ride", "True", "MinimumReplicasAvailable", "2", "3", "12", "0"]
    assert json.loads((await get_by_process("ride", "-o", "json")).stdout) == OBJECT
    assert len((await get_by_process("-n", "elsewhere")).stdout.splitlines()) == 1
    title, ride, new = (await get_by_process("-A")).stdout.splitlines()
    assert title.split()[:2] == ["NAMESPACE", "NAME"]
    assert [line.split()[:2] for line in (ride, new)] == [["lifts", "ride"], ["others", "new"]]
    done = await get_by_process("down", "--kubeconfig")
    assert done.returncode == 1
    assert done.stderr == "paternoster get: there is no LLMDeployment lifts/down in the cluster of context home\n"
    done = await get_by_process("-A", "-n", "lifts")
    assert done.returncode == 2
    assert done.stderr == "paternoster get: --all-namespaces goes with neither a name nor --namespace\n"


async def test_whole_objects(server: str, get: Any) -> None:
    assert json.loads((await get("ride", "--server", server, "-o", "json")).stdout) == OBJECT
    assert yaml.safe_load((await get("--server", server, "-o", "yaml")).stdout)["items"] == [OBJECT, BARE]


async def test_what_is_not_there_is_named(server: str, get: Any) -> None:
    for words, message in (
        (("down", "--server", server), "there is no LLMDeployment down"),
        (("--server", "http://127.0.0.1:1"), "http://127.0.0.1:1 does not answer: [Errno 111] Connection refused"),
        (("--server", server + "/elsewhere"), "does not answer: Not Found"),
        (("--server", "nowhere"), "nowhere is no operator's address"),
    ):
        done = await get(*words)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith("paternoster get: ")
        assert message in line


async def test_without_a_cluster_the_reason_is_told(
    get_by_process: Any, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["KUBECONFIG"] = str(tmp_path / "nothing")
    done = await get_by_process()
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]  # the Kubernetes client logs a line of its own first
    assert line.startswith("paternoster get: no 'paternoster up' runs on this machine, and no usable kubeconfig: ")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(7, "7s"), (60, "1m"), (125, "2m5s"), (45 * 60 + 9, "45m"), (12_000, "3h20m"), (12 * 86_400 + 18_000, "12d")],
)
def test_ages_are_short(seconds: int, shown: str) -> None:
    assert format_age(seconds) == shown
