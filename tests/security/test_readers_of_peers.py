"""Every place in which the operator reads what somebody else wrote, with the bound that holds there."""

import ast
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

import paternoster_operator
from paternoster_contract.fetch_status import LONGEST_MESSAGE as LONGEST_REASON
from paternoster_contract.fetch_status import FetchStatus
from paternoster_operator.local.probe import Probe, http_check
from paternoster_operator.observed import Observed
from paternoster_operator.pods.events import MAX_NOTE, read_events
from paternoster_operator.pods.reading import LONGEST_MESSAGE, LONGEST_TERMINATION

ROOT = Path(paternoster_operator.__file__).parent
PARSERS = {
    "json.load", "json.loads", "yaml.load", "yaml.safe_load", "yaml.safe_load_all", "bounded_json", "read_object",
    "read_samples", "FetchStatus.read",
}  # fmt: skip
METHODS = {"model_validate_json", "iter_chunked", "iter_any", "json", "readline"}
"""Methods of any object."""
PLACES = {
    "api/manifest.py: _read_documents": "the user's own file",
    "api/pod/fields.py: _read_types": "a file of this package",
    "cluster/foreign_fields.py: _write_path": "a key of managedFields, which the API server checks and bounds",
    "cluster/api_requests.py: _is_namespace_ending": "the API server's refusal, whose kind and causes alone are read",
    "cluster/api_requests.py: _is_status": "the API server's refusal, whose kind alone is read",
    "cluster/api_requests.py: _read_message": "the API server's words, cut to LONGEST_MESSAGE",
    "cluster/api_requests.py: read_bounded": "as many bytes as its caller allows",
    "cluster/api_requests.py: send": "the API server's: _LONGEST_ANSWER, of events _LONGEST_EVENTS",
    "cluster/kubeconfig.py: read": "the API server's: a page of at most MOST_PODS pods, of 1.5 MiB each",
    "cluster/kopf_watches.py: _list_and_follow": "the API server's: a line an event, of 1.5 MiB",
    "cluster/kopf_watches.py: _read_pages": "the API server's: a page of at most chunk_size objects, of 1.5 MiB each",
    "commands/operator.py: _parse_security_context": "a flag, which the chart writes",
    "engines/answers.py: read_object": "check_values before it",
    "engines/answers.py: sum_samples": "a SampleFilter in read_samples",
    "engines/paternoster.py: parse_stats": "LONGEST_STATS, check_values before it",
    "engines/sglang.py: _read_info": "LONGEST_INFO, MAX_INFO_VALUES",
    "engines/sglang.py: check_set": "LONGEST_ANSWER; what it raises ends the call",
    "engines/vllm.py: parse_stats": "LONGEST_REPORT, MAX_VALUES",
    "engines/vllm_metrics.py: read_metrics": "a SampleFilter in read_samples",
    "engines/vllm_without_plugin.py: _read_version": "LONGEST_VERSION, MAX_VALUES",
    "engines/vllm_without_plugin.py: parse_stats": "a SampleFilter in read_samples",
    "keys/bounded_yaml.py: load_bounded_yaml": "bounded before it",
    "local/client.py: _running_session": "this user's own file",
    "local/client.py: _read_refusal": "LONGEST_RECORDS",
    "local/client.py: fetch_calls": "LONGEST_RECORDS",
    "local/client.py: fetch_list": "a command's, of an address that its user names",
    "local/session.py: _remove_state": "this user's own file",
    "names/record.py: decode": "a ConfigMap that only the operator writes, of at most 1 MiB",
    "report/model_fetch.py: find_failure": "LONGEST_TERMINATION, and the bounds of FetchStatus",
    "report/model_fetch.py: progress_words": "LONGEST_TERMINATION, and the bounds of FetchStatus",
    "routes/shard_tables.py: _read_row": "another operator's of this installation, within what _read_rows has read",
    "routes/shard_tables.py: _read_rows": "another operator's of this installation: twice MOST_BYTES",
    "scrape.py: _parse_gateway_stats": "LONGEST_GATEWAY_STATS, the bounds of bounded_json, MODELS_AT_ONCE",
    "scrape.py: _read_body": "its parameter longest",
    "scrape.py: _read_download": "LONGEST_ANSWER, and the bounds of FetchStatus",
    "shards/claims.py: decode": "a ConfigMap that only the operator writes, of at most 1 MiB",
    "terminal/plan_lines.py: _keep_items": "a key of managedFields, which the API server checks and bounds",
}
"""What bounds the text there. ``tests/operator/engines/test_answers.py`` and ``scraping/test_failure_domains.py`` under
``tests/operator/reconcile`` try hostile answers at those of engines and gateways."""


def list_places() -> Iterator[str]:
    """``file: function`` of each call that parses text, or reads a body."""

    def visit(node: ast.AST, file: str, function: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
            if isinstance(child, ast.Call):
                name = ast.unparse(child.func)
                if name in PARSERS or ("." in name and name.rpartition(".")[2] in METHODS):
                    yield f"{file}: {inner}"
            yield from visit(child, file, inner)

    for path in ROOT.rglob("*.py"):
        yield from visit(ast.parse(path.read_text()), str(path.relative_to(ROOT)), "")


def test_each_place_that_reads_foreign_text_has_a_bound() -> None:
    assert {*list_places()} == {*PLACES}


@pytest.mark.parametrize(
    "fields",
    [
        {"done": 10**400}, {"total": 10**400, "done": 1}, {"rate": 1e308}, {"message": "x" * (LONGEST_REASON + 1)},
        {"path": "x" * 5000}, {"reason": "A" * 100},
    ],
)  # fmt: skip
def test_a_download_that_cannot_be_is_none(fields: dict[str, Any]) -> None:
    text = json.dumps({"state": "downloading", "total": 1, **fields})
    assert FetchStatus.read(text) is None
    assert FetchStatus.read("[" * 60_000) is None


def test_messages_of_statuses_are_cut() -> None:
    """Some causes are found in a time by the square of the text's length."""
    long = "0/3 nodes are available: " * 40_000
    pod = {
        "metadata": {"name": "a"},
        "status": {
            "phase": "Failed", "message": long,
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": long},
                {"type": "DisruptionTarget", "status": "True", "message": long},
                {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": long},
            ],
            "containerStatuses": [
                {"name": "engine", "lastState": {"terminated": {"exitCode": 1, "message": "x" * 10**6}}},
            ],
        },
    }  # fmt: skip
    deployment = {
        "metadata": {}, "spec": {},
        "status": {
            "conditions": [
                {"type": "Progressing", "status": "False", "message": long},
                {"type": "ReplicaFailure", "status": "True", "message": long},
            ]
        },
    }  # fmt: skip
    observed = Observed.from_cluster(deployment, [pod])
    (view,), made = observed.pods, observed.deployment
    assert made is not None
    assert view.disruption is not None
    assert view.ended is not None
    messages = (
        view.message, view.ended_message, view.readiness_gate, view.disruption.message, made.message,
        made.create_failure,
    )  # fmt: skip
    assert {len(message) for message in messages} == {LONGEST_MESSAGE + len("...")}
    assert len(view.ended.message) == LONGEST_TERMINATION


def test_notes_of_events_are_cut() -> None:
    document = {
        "reason": "FailedMount",
        "note": "a " * 10**6,
        "regarding": {"fieldPath": f"spec.containers{{{'c' * 9999}}}"},
    }
    (event,) = read_events([document])
    assert (len(event.note), event.container) == (MAX_NOTE, "")


@pytest.fixture
async def program() -> AsyncIterator[str]:
    """A program of ``paternoster up`` whose probes are hostile; its URL."""

    async def redirect(_: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "http://[::1:x/"})

    async def go_elsewhere(_: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/fail")

    async def fail(_: web.Request) -> web.StreamResponse:
        return web.Response(status=500)

    app = web.Application()
    app.router.add_get("/broken", redirect)
    app.router.add_get("/elsewhere", go_elsewhere)
    app.router.add_get("/fail", fail)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_probe_follows_no_redirect(program: str) -> None:
    async with aiohttp.ClientSession() as session:
        check = http_check(session, program)
        assert [await check(Probe(path)) for path in ("/broken", "/elsewhere", "/fail")] == [True, True, False]


async def test_whatever_a_probe_raises_is_a_failure() -> None:
    class Raising:
        def get(self, *_: object, **__: object) -> object:
            raise RecursionError

    assert not await http_check(Raising(), "http://x")(Probe("/"))  # type: ignore[arg-type]
