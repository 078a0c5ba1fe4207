"""``paternoster doctor``: which part of an operator is the bottleneck, by its own metrics of two moments."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from tests.operator.conftest import manifest_document
from tests.operator.reconcile.world import FakeCluster

from paternoster_contract.routing_rows import MOST_BYTES
from paternoster_operator.cluster.port import Key
from paternoster_operator.commands import doctor
from paternoster_operator.metrics import OperatorMetrics
from paternoster_operator.publish import build_app, serve_app
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings
from paternoster_operator.terminal.bottleneck import (
    CHECKS,
    PREFIX,
    Diagnosis,
    OperatorSample,
    Reading,
    describe_figures,
    diagnose,
    summarize_diagnosis,
)

GOLDEN = Path(__file__).with_name("doctor.txt")
ROOT = Path(__file__).parents[3]
SECONDS = 10.0
"""Between the two samples of most tests."""


def repeat(times: int, act: Callable[..., object], *words: Any) -> None:
    for _ in range(times):
        act(*words)


FAULTS: Mapping[str, Callable[[OperatorMetrics], object]] = {
    "refused": lambda m: repeat(20, m.traffic.count_request, "patch", "services", 429, 0.01),
    "failed": lambda m: repeat(5, m.traffic.count_request, "get", "secrets", 503, 0.01),
    "no answer": lambda m: m.traffic.count_request("get", "leases", 0, 0.01),
    "slow API": lambda m: repeat(20, m.traffic.count_request, "get", "secrets", 200, 4.0),
    "watch fails": lambda m: [m.observe_watch("Pod", name, works=False) for name in ("lifts", "slopes", "a", "b")],
    "events": lambda m: repeat(3000, m.traffic.count_object, "Pod", "MODIFIED"),
    "listed again": lambda m: repeat(3000, m.traffic.count_unchanged, "Pod"),
    "lists": lambda m: m.traffic.count_bytes("Pod", "list", 10**9),
    "silence": lambda m: m.event_loop_silence.observe(3.0),
    "polls fail": lambda m: repeat(3, m.observe_scrape, "engine", False, 0.2),
    "polls are slow": lambda m: m.observe_scrape("gateway", True, 1.8),
    "drift": lambda m: repeat(9, m.traffic.count_write, "Deployment", "Drifted"),
    "writes": lambda m: repeat(900, m.traffic.count_write, "LLMDeployment/status", "Conditions"),
    "table": lambda m: m.routes_bytes.set(MOST_BYTES * 0.9),
    "left out": lambda m: m.routes_left_out.set(7),
    "unread rows": lambda m: m.routes_unread.set(2),
    "shards": lambda m: m.shards_unread.set(1),
    "record": lambda m: m.name_record_read.set(0),
    "record faults": lambda m: m.count_name_record_fault("write"),
    "looks fail": lambda m: repeat(9, m.reconciles.labels("error").inc),
    "oldest": lambda m: m.traffic._oldest.labels("requested").set(61),
    "waits": lambda m: repeat(9, m.traffic.observe_wait, "scheduled", 8.0, 5.0),
}
"""Changes of metrics between two samples, by the name of the fault."""


def make_metrics() -> OperatorMetrics:
    """Make the metrics of a leader that does its work."""
    metrics = OperatorMetrics()
    metrics.leading.set(1)
    metrics.name_record_read.set(1)
    for kind in ("requested", "scheduled"):
        metrics.traffic._oldest.labels(kind).set(0.25)
        metrics.traffic.observe_wait(kind, 0.1, 5.0)
    metrics.observe_watch("Pod", "*", works=True)
    return metrics


def work(metrics: OperatorMetrics) -> None:
    """Count the work of a leader in ten seconds."""
    for _ in range(20):
        metrics.traffic.observe_wait("scheduled", 0.25, 5.0)
        metrics.traffic.count_request("patch", "services", 200, 0.0625)
        metrics.traffic.count_write("Service", "Changed")
        metrics.traffic.count_object("Pod", "MODIFIED")
        metrics.observe_scrape("engine", True, 0.125)
        metrics.event_loop_silence.observe(0.001)
        metrics.reconciles.labels("ok").inc()


def sample(metrics: OperatorMetrics, at: float, cpu: float = 10.0) -> OperatorSample:
    """One sample, with fixed figures of the process."""
    text = re.sub(r"(?m)^process_.*\n", "", generate_latest(metrics.registry).decode())
    process = f"process_cpu_seconds_total {cpu}\nprocess_resident_memory_bytes 2e8\nprocess_start_time_seconds 5.0\n"
    return OperatorSample.parse(text + process, at)


def read(fault: Callable[[OperatorMetrics], object] = lambda _: None, cpu: float = 2.0, **pod: Any) -> Reading:
    """An operator that does its work, and has ``fault``, between two samples."""
    metrics = make_metrics()
    before = sample(metrics, 100.0)
    work(metrics)
    fault(metrics)
    return Reading("operator-a", before, sample(metrics, 100.0 + SECONDS, 10.0 + cpu), **pod)


def show(diagnosis: Diagnosis) -> list[str]:
    if not diagnosis.findings:
        return [describe_figures(diagnosis)]
    return [
        line
        for each in diagnosis.findings
        for line in (f"{each.part}  {each.operator}", each.seen, f"  means {each.means}", f"  do {each.remedy}")
    ]


def test_each_fault_is_named_with_figure_meaning_and_remedy() -> None:
    cases = {
        "well": read(shard="0"),
        **{name: read(fault) for name, fault in FAULTS.items()},
        "processor": read(cpu=9.5, cpus=4.0),
        "throttled": read(cpu=4.5, cpus=0.5),
        "memory": read(memory_bytes=2.1e8),
    }
    pages = {name: diagnose([reading], {}) for name, reading in cases.items()}
    lines = [line for name, page in pages.items() for line in (f"### {name}", *show(page), "")]
    lines += ["### unread", *show(diagnose([read()], {"operator-b": "HTTP 503"})), ""]
    standby = Reading("b", *(sample(OperatorMetrics(), at) for at in (0.0, 1.0)), shard="1")
    lines += ["### no leader", *show(diagnose([read(shard="0"), standby], {})), ""]
    assert "\n".join(lines) == GOLDEN.read_text()
    assert not pages["well"].findings
    found = {each.figure for page in pages.values() for each in page.findings}
    assert found == {check.figure for check in CHECKS}, "each check has a fault that it finds"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.figure)
def test_a_check_names_metrics_pages_and_values_that_exist(check: Any) -> None:
    families = {family.name for family in OperatorMetrics().registry.collect()}
    assert {f"{PREFIX}{name}".removesuffix("_total") for name in check.metrics} <= families
    for page in re.findall(r"docs/\S+?\.md", check.remedy):
        assert (ROOT / page).is_file()
    values = yaml.safe_load((ROOT / "charts/paternoster/values.yaml").read_text())
    for path in re.findall(r"\boperator(?:\.\w+)+", check.remedy):
        found = values
        for part in path.split("."):
            if part in ("cpu", "memory"):
                break
            assert part in found, path
            found = found[part]


@given(st.sets(st.sampled_from(sorted(FAULTS))), st.permutations(["x", "y", "z"]))
def test_findings_are_those_of_each_fault_whatever_the_order(faults: set[str], names: list[str]) -> None:
    def break_all(metrics: OperatorMetrics) -> None:
        for each in sorted(faults):
            FAULTS[each](metrics)

    broken, well = read(break_all), read()
    readings = [Reading(name, *((broken if name == "x" else well).before, broken.after if name == "x" else well.after))
                for name in names]  # fmt: skip
    findings = diagnose(readings, {}).findings
    assert {each.operator for each in findings} == ({"x"} if faults else set())
    order = [(check.part, check.figure) for check in CHECKS]
    places = [order.index((each.part, each.figure)) for each in findings]
    assert places == sorted(places), "causes before what follows of them"
    # Figures of one fault add to another's, as writes do; none hides another.
    assert {figure for name in faults for figure in find_alone(name)} <= {each.figure for each in findings}


@cache
def find_alone(fault: str) -> frozenset[str]:
    """Figures beyond their limits at an operator with one fault."""
    return frozenset(each.figure for each in diagnose([read(FAULTS[fault])], {}).findings)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0.001, 1e4))
def test_a_counter_that_begins_anew_never_grows_by_less_than_nothing(before: int, after: int, seconds: float) -> None:
    def parse(count: int, at: float) -> OperatorSample:
        text = f'{PREFIX}leading 1\n{PREFIX}writes_total{{kind="Pod",reason="Drifted"}} {count}\n'
        return OperatorSample.parse(text, at)

    reading = Reading("a", parse(before, 0.0), parse(after, seconds))
    (rate,) = reading.find_rate("writes_total", "kind").values()
    grown = after - before if after >= before else after
    assert rate == pytest.approx(grown / seconds)
    findings = diagnose([reading], {}).findings
    assert any(each.figure == "children written over others' edits" for each in findings) is (grown / seconds > 0.5)


def test_a_process_that_began_between_the_samples_counts_from_0() -> None:
    text = (
        f'{PREFIX}leading 1\nprocess_start_time_seconds {{}}\n{PREFIX}name_record_faults_total{{{{reason="read"}}}} 3\n'
    )
    first, second = (OperatorSample.parse(text.format(start), start) for start in (1.0, 2.0))
    assert Reading("a", first, second).find_increase(f"{PREFIX}name_record_faults_total") == {"": 3.0}
    assert Reading("a", first, first).find_increase(f"{PREFIX}name_record_faults_total") == {"": 0.0}


@pytest.mark.parametrize("text", ["", "<html>", "{}", "paternoster_engine_live_cap 3\n", f"{PREFIX}leading\n"])
def test_what_is_no_operators_page_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"operator|value"):
        OperatorSample.parse(text, 0.0)


class StuckCluster(FakeCluster):
    """A cluster whose API server answers no write, of a hundred fleets."""

    def __init__(self) -> None:
        super().__init__()
        self.resource = manifest_document()
        self.answers = asyncio.Event()

    def get(self, key: Key) -> Mapping[str, Any] | None:
        return self.resource

    async def apply(self, obj: dict[str, Any]) -> dict[str, Any]:
        await self.answers.wait()
        return obj


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Operator, StuckCluster, str]]:
    monkeypatch.setattr(doctor, "INTERVAL_SECONDS", 0.05)
    cluster = StuckCluster()
    operator = Operator(cluster, Settings(workers=1))
    http, port = await serve_app(build_app(operator), "127.0.0.1", 0)
    yield operator, cluster, f"http://127.0.0.1:{port}"
    cluster.answers.set()
    await operator.stop()
    await http.close()


async def test_a_queue_that_is_behind_is_found_at_a_running_operator(
    server: tuple[Operator, StuckCluster, str], call_paternoster: Any
) -> None:
    operator, _, url = server
    operator.start()
    for number in range(100):
        operator.enqueue_key(Key("lifts", f"ride-{number}"))
    while len(operator._queue) > 100:
        await asyncio.sleep(0.01)
    clock = operator._queue._clock
    operator._queue._clock = lambda: clock() + 90  # the one worker waits for the API server
    done = await asyncio.to_thread(call_paternoster, "doctor", "--server", url, "-o", "json")
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    waits = [each for each in document["findings"] if each["figure"] == "longest time that a fleet waits"]
    assert [each["part"] for each in waits] == ["work queue"]
    assert waits[0]["values"]["requested"] > 89
    assert waits[0]["limit"] == 10
    assert document["operators"] == {url: "leads"}
    done = await asyncio.to_thread(call_paternoster, "doctor", "--server", url)
    assert done.returncode == 1
    assert "work queue  " in done.stdout
    assert "longest time that a fleet waits: requested 9" in done.stdout
    assert re.search(r"\ndo +mend what is named above", done.stdout)


async def test_an_operator_that_has_nothing_to_do_is_well(
    server: tuple[Operator, StuckCluster, str], call_paternoster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The processor time of this process is that of the test and of the command, too.
    monkeypatch.setattr(Reading, "find_cpu_share", lambda _: {})
    _, _, url = server
    done = await asyncio.to_thread(call_paternoster, "doctor", "--server", url)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first == f"operators: {url} stands by"
    assert second.startswith("nothing is the bottleneck: ")
    assert "work queue: longest time that a fleet waits 0 s" in second


async def test_what_is_no_operator_is_named(serve_objects: Any, call_paternoster: Any) -> None:
    async with serve_objects() as url:
        done = await asyncio.to_thread(call_paternoster, "doctor", "--server", url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"paternoster doctor: {url} does not answer: Not Found\n"


def make_pod(name: str, shard: str | None = None, **limits: str) -> dict[str, Any]:
    labels = {} if shard is None else {"paternoster.dev/shard": shard}
    port = {"name": "http", "containerPort": 8090}
    container = {"name": "operator", "ports": [port], "resources": {"limits": limits}}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]}}


def serve_cluster(pods: Sequence[dict[str, Any]], pages: Mapping[str, str | None]) -> Starlette:
    """An API server with a proxy to ``pods``; one whose page is None does not let the caller reach it."""

    async def list_pods(request: Request) -> Response:
        wanted = "app.kubernetes.io/part-of=paternoster,app.kubernetes.io/component=operator"
        assert request.query_params["labelSelector"] == wanted
        return JSONResponse({"items": pods if request.path_params["namespace"] == "lifts" else []})

    async def reach(request: Request) -> Response:
        name, _, port = request.path_params["pod"].partition(":")
        assert port == "8090"
        page = pages[name]
        return Response(status_code=503) if page is None else PlainTextResponse(page)

    place = "/api/v1/namespaces/{namespace}/pods"
    return Starlette(routes=[Route(place, list_pods), Route(place + "/{pod}/proxy/metrics", reach)])


def page_of(metrics: OperatorMetrics) -> str:
    return re.sub(r"(?m)^process_cpu.*\n", "", generate_latest(metrics.registry).decode())


@pytest.mark.parametrize(
    ("pages", "status", "words"),
    [
        ({"a": "leads", "b": "stands by"}, 0, ["operators: a leads, b stands by", "nothing is the bottleneck: "]),
        ({"a": "stands by", "b": "stands by"}, 1, ["leadership  a, b", "none of them leads shard 0"]),
        ({"a": "leads", "b": None}, 1, ["operator  b", "its metrics are not read: HTTP 503"]),
        ({"a": "leads", "b": "other"}, 1, ["operator  b", "this is no operator's address"]),
        ({"a": None, "b": None}, 2, ["paternoster doctor: a: HTTP 503", "paternoster doctor: b: HTTP 503"]),
        ({}, 2, ["namespace lifts in the cluster of context home has no pod with the labels"]),
    ],
)
async def test_all_operators_of_a_cluster_are_read(
    pages: dict[str, str | None], status: int, words: list[str], monkeypatch: pytest.MonkeyPatch,
    write_kubeconfig: Callable[[str], None], capsys: pytest.CaptureFixture[str], environment: dict[str, str],
) -> None:  # fmt: skip
    texts = {"leads": page_of(make_metrics()), "stands by": page_of(OperatorMetrics()), "other": "up 1\n"}
    texts["stands by"] = texts["stands by"].replace("name_record_read 0.0", "name_record_read 1.0")
    pods = [make_pod(name, memory="64Gi") for name in pages]
    app = serve_cluster(pods, {name: page and texts[page] for name, page in pages.items()})
    http, port = await serve_app(app, "127.0.0.1", 0)
    write_kubeconfig(f"http://127.0.0.1:{port}")
    monkeypatch.setattr(doctor, "INTERVAL_SECONDS", 0.0)
    for module in ("kubernetes.aio.config", "kubernetes.aio.config.kube_config"):
        monkeypatch.setattr(f"{module}.KUBE_CONFIG_DEFAULT_LOCATION", environment["KUBECONFIG"])
    parsed = _parse("--kubeconfig")
    done = await asyncio.to_thread(doctor.run, parsed)
    await http.close()
    printed = "".join(capsys.readouterr())
    assert done == status, printed
    flat = re.sub(r"\s+", " ", printed)
    for each in words:
        assert re.sub(r"\s+", " ", each) in flat, printed


def _parse(*words: str) -> Any:
    import argparse

    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)
    return parser.parse_args(words)


def test_text_of_others_cannot_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = make_metrics()
    before = sample(metrics, 0.0)
    metrics.observe_watch("Pod", "\x1b[31mred[/bold]", works=False)
    diagnosis = diagnose([Reading("[bold]a\x1b[2J", before, sample(metrics, 1.0))], {})
    doctor._print_findings(diagnosis)
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "[bold]a" in printed
    assert "[/bold]" in printed
    assert json.dumps(summarize_diagnosis(diagnosis)).isascii()
