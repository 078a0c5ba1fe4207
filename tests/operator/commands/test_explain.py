"""``paternoster explain``: from an operator's HTTP, from a cluster, and in the very words."""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from paternoster_operator.api.types.status import LLMDeploymentStatus
from paternoster_operator.commands import explain as command
from paternoster_operator.terminal.explain import explain_status, summarize_status

NOW = "2026-11-20T12:00:00Z"
GOLDEN = Path(__file__).with_name("explain.txt")
OBJECT: dict[str, Any] = json.loads(Path(__file__).with_name("fleet.json").read_text())
DECISIONS = OBJECT["status"]["decisions"]
BARE = {**OBJECT, "metadata": {**OBJECT["metadata"], "name": "new"}, "status": {"observedGeneration": -1}}


def test_the_sample_is_a_status() -> None:
    LLMDeploymentStatus.model_validate(OBJECT["status"])


def test_the_words() -> None:
    assert explain_status(OBJECT, last=10) == GOLDEN.read_text().splitlines()


@pytest.mark.parametrize(
    ("finished", "preempted", "summary"),
    [
        (12, 0, "0 of 12 requests preempted"),
        (40, 8, "8 of 40 requests preempted"),
        (1, 3, "3 of 3 requests preempted"),
        (0, 0, "no request finished lately"),
    ],
)
def test_preemptions_are_told_of_what_finished(finished: int, preempted: int, summary: str) -> None:
    load = {**OBJECT["status"]["load"], "finishedRequests": finished, "preemptedRequests": preempted}
    document = {**OBJECT, "status": {**OBJECT["status"], "load": load}}
    assert f"tokens/s, {summary}, 71%" in "\n".join(explain_status(document, last=0))


UNREPORTED = [
    (("kvCachePercent",), "1830 tokens/s, 8 of 40 requests preempted, KV use not reported"),
    (
        ("preemptedRequests", "preemptionsPerThousand"),
        "1830 tokens/s, 40 requests finished, preemptions not reported, 71% of KV used",
    ),
    (
        ("finishedRequests",),
        "1830 tokens/s, 8 requests preempted of a count not reported, 71% of KV used",
    ),
    (
        ("kvCachePercent", "preemptedRequests", "preemptionsPerThousand", "finishedRequests"),
        "1830 tokens/s, preemptions not reported, KV use not reported",
    ),
    (("generationTokensPerSecond",), "tokens/s not reported, 8 of 40 requests preempted"),
    (("runningRequests", "waitingRequests"), "running and waiting requests not reported, 0 held"),
]


@pytest.mark.parametrize(("names", "words"), UNREPORTED)
def test_a_number_that_engines_do_not_report_is_named(names: tuple[str, ...], words: str) -> None:
    load = {name: value for name, value in OBJECT["status"]["load"].items() if name not in names}
    document = {**OBJECT, "status": {**OBJECT["status"], "load": load}}
    LLMDeploymentStatus.model_validate(document["status"])
    assert words in "\n".join(explain_status(document, last=0))


def test_a_capacity_that_no_engine_reports_is_not_0() -> None:
    cap = {"target": 8}
    text = "\n".join(explain_status({**OBJECT, "status": {**OBJECT["status"], "concurrency": cap}}, last=0))
    assert "live cap  8 sequences an engine, whose capacity is not reported" in text


def test_gateways_that_hold_the_cap_are_told() -> None:
    condition = {**OBJECT["status"]["conditions"][0], "type": "GatewayCap", "reason": "LimitsNotMovable"}
    held = {"maxInFlight": 8, "parts": {"g": 8}, "reason": "a: HTTP 404"}
    status = {**OBJECT["status"], "gatewayCap": held, "conditions": [*OBJECT["status"]["conditions"], condition]}
    text = "\n".join(explain_status({**OBJECT, "status": status}, last=0))
    assert "8 requests at a time at each engine, held by gateways" in text
    assert "LimitsNotMovable" in text


def test_so_many_decisions_as_asked_for() -> None:
    explanation = "\n".join(explain_status(OBJECT, last=1))
    assert "Last 1 decisions" in explanation
    assert "PreemptionAboveTarget" not in explanation
    assert [each["time"] for each in summarize_status(OBJECT, last=2)["decisions"]] == [NOW, "2026-11-20T11:59:00Z"]


def test_an_object_nobody_looked_at() -> None:
    assert explain_status(BARE, last=10) == ["lifts/new", "", "No operator has looked at it yet."]


@pytest.fixture
async def server(serve_objects: Any) -> AsyncIterator[str]:
    """An operator with two LLMDeployments, and an API server that has the same."""
    async with serve_objects(OBJECT, BARE) as url:
        yield url


@pytest.fixture
def kubeconfig(server: str, write_kubeconfig: Callable[[str], None]) -> None:
    """A kubeconfig whose only cluster is ``server``."""
    write_kubeconfig(server)


@pytest.fixture
def run_explain(call_paternoster: Any) -> Callable[..., Awaitable[CompletedProcess[str]]]:
    return lambda *words: asyncio.to_thread(call_paternoster, "explain", *words)


@pytest.fixture
def explain_by_process(paternoster: Any) -> Callable[..., Awaitable[CompletedProcess[str]]]:
    return lambda *words: asyncio.to_thread(paternoster, "explain", *words)


async def test_from_an_operator(server: str, run_explain: Any) -> None:
    assert (await run_explain("ride", "--server", server)).stdout == GOLDEN.read_text()
    assert (await run_explain("ride", "-n", "lifts", "--server", server)).stdout == GOLDEN.read_text()
    as_json = json.loads((await run_explain("ride", "--server", server, "--json", "--last", "2")).stdout)
    assert as_json["decisions"] == DECISIONS[:2]
    assert as_json["economics"] == OBJECT["status"]["economics"]
    for words, message in (
        (("ride", "-n", "elsewhere"), f"there is no LLMDeployment elsewhere/ride at {server}"),
        (("down",), f"there is no LLMDeployment down at {server}"),
    ):
        done = await run_explain(*words, "--server", server)
        assert (done.returncode, done.stderr) == (1, f"paternoster explain: {message}\n")


async def test_from_a_cluster(kubeconfig: None, explain_by_process: Any) -> None:
    """Without a session on this machine the kubeconfig's context answers, in its own namespace."""
    assert (await explain_by_process("ride")).stdout == GOLDEN.read_text()
    done = await explain_by_process("ride", "-n", "other", "--kubeconfig")
    assert done.returncode == 1
    assert done.stderr == ("paternoster explain: there is no LLMDeployment other/ride in the cluster of context home\n")


async def test_without_a_cluster_the_reason_is_told(
    explain_by_process: Any, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["KUBECONFIG"] = str(tmp_path / "nothing")
    done = await explain_by_process("ride")
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]  # the Kubernetes client has its own word first
    assert line.startswith("paternoster explain: no 'paternoster up' runs on this machine, and no usable kubeconfig: ")


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_a_bad_number_is_refused(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["ride", f"--last={number}"])
    assert f"--last: is '{number}': must be a whole number of at least 1" in capsys.readouterr().err
