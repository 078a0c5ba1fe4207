"""Foreign text at each place where it reaches a reader: terminal, log, event, status, page.

Each sink below writes a text that a pod, a client, a model file or an API server may have sent. A new one belongs in
the list; ``make lint`` refuses ``print``, rich's console, formatters of logs and HTML's escape outside their modules.
"""

import argparse
import asyncio
import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.live import Live
from rich.logging import RichHandler
from rich.progress import Progress
from rich.text import Text

from paternoster_contract.cli import logs
from paternoster_contract.cli.console import QuotingConsole
from paternoster_contract.cli.quoting import LONGEST_LINE, MOST_LINES, quote_document, quote_line, quote_lines
from paternoster_contract.cli.terminal import print_error, print_line, print_lines, print_text
from paternoster_contract.labels import API_VERSION, KIND, MANAGED_BY
from paternoster_gateway.process.access_log import AccessLog
from paternoster_http.server import HttpLimits, LimitedServer
from paternoster_load.reports import html
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.autoscaling.decision import LoopDecision, Reason
from paternoster_operator.cluster.port import Event
from paternoster_operator.commands import explain, get, plan, profile, resource, status
from paternoster_operator.observed import Observed
from paternoster_operator.report.conditions import Condition
from paternoster_operator.report.status import failed_status, invalid_status
from paternoster_operator.settings import Settings
from paternoster_operator.terminal.plan_lines import describe_plan
from paternoster_operator.terminal.view import render_view

HOSTILE = {
    "clear the screen": "\x1b[2J\x1b[H",
    "write the clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "one-byte CSI": "\x9b31m",
    "new line": "\n2026-01-01 00:00:00,000 CRITICAL root: forged",
    "carriage return": "\rforged",
    "both": "\r\nforged",
    "line separators": "\u2028forged\u2029\x85\x0b\x0c\x1c",
    "direction": "\u202egpj.exe\u2066",
    "zero": "a\x00b",
    "half a surrogate": "\ud83d",
    "backspaces": "safe\x08\x08\x08\x08evil",
    "invisible": "a\u200bb\ufeffc",
    "long": "x" * 300_000 + "\x1b[31m",
}
MARKUP = "[bold red]x[/bold red] [link=https://a.example]y[/link] [/] :smile: <b>z</b> {x} %s"
"""Printable, and read by nothing."""
FLEET: dict[str, Any] = json.loads((Path(__file__).parents[2] / "operator/commands/fleet.json").read_text())


def fleet_with(text: str) -> dict[str, Any]:
    """An LLMDeployment in whose status and spec all kinds of text are this one."""
    status = FLEET["status"]
    conditions = [{**each, "status": "False", "message": text} for each in status["conditions"]]
    decisions = [{**each, "message": text, "formula": text} for each in status["decisions"]]
    status = {**status, "conditions": conditions, "decisions": decisions, "servedModel": text, "endpoint": text}
    return {**FLEET, "metadata": {**FLEET["metadata"], "name": text}, "status": status}


def run_command(monkeypatch: pytest.MonkeyPatch, module: Any, text: str, **args: Any) -> str:
    monkeypatch.setattr(resource, "find_resource", lambda _: fleet_with(text))
    out = io.StringIO()
    with redirect_stdout(out):
        flags = {"request": None, "slowest": None, **args}
        module.run(argparse.Namespace(name="x", namespace=None, all_namespaces=False, **flags))
    return out.getvalue()


def show_on_console(show: Callable[[QuotingConsole], object], **options: Any) -> str:
    console = QuotingConsole(file=io.StringIO(), width=50_000, **options)
    show(console)
    return console.file.getvalue()  # type: ignore[attr-defined]


@contextmanager
def new_process() -> Iterator[None]:
    root = logging.getLogger()
    before, hook = (root.handlers, root.level), sys.excepthook
    root.handlers = []
    try:
        yield
    finally:
        (root.handlers, level), sys.excepthook = before, hook
        root.setLevel(level)


def write_log(record: Callable[[logging.Logger], object], *flags: str) -> str:
    """What a command's process writes to standard error."""
    parser, err = argparse.ArgumentParser(), io.StringIO()
    logs.add_log_flags(parser, default_level="info")
    with new_process(), redirect_stderr(err):
        logs.configure_logging(parser.parse_args(flags))
        LimitedServer(lambda *_: None, HttpLimits())  # type: ignore[arg-type, return-value]
        record(logging.getLogger("uvicorn.error"))
    return err.getvalue()


def log_exception(log: logging.Logger, text: str) -> None:
    try:
        raise ExceptionGroup(text, [ValueError(text)]) from KeyError(text)
    except ExceptionGroup:
        log.exception("%s", text, stack_info=True)


def log_with_cached_traceback(log: logging.Logger, text: str) -> None:
    """Another program's formatter has put its own text of the traceback into the record."""
    try:
        raise ValueError(text)
    except ValueError as error:
        record = log.makeRecord("kopf", 40, "f", 1, text, (), (ValueError, error, error.__traceback__))
    logging.Formatter().format(record)
    log.handle(record)


def raise_uncaught(text: str) -> None:
    error = RuntimeError(text)
    sys.excepthook(RuntimeError, error, None)


def show_records(console: QuotingConsole, text: str) -> None:
    """The log of ``paternoster up`` passes through its console so."""
    handler = RichHandler(console=console, show_path=False, show_time=False)
    handler.setFormatter(logs.TextFormatter("%(message)s"))
    log = logging.Logger("up")
    log.addHandler(handler)
    log.warning("%s", text)
    log_exception(log, text)


def show_live(console: QuotingConsole, text: str) -> None:
    decision = LoopDecision("Replicas", 3, 3, 4, Reason.MAX_REPLICAS, text)
    event = ("2026-01-01T00:00:00Z", text, Event("Warning", "Failed", text))
    with Live(console=console, transient=False, auto_refresh=False) as live:
        live.update(render_view(text, [], [(text, decision)], [event]), refresh=True)


def show_bar(console: QuotingConsole, text: str) -> None:
    with Progress("{task.description}", "{task.fields[what]}", console=console, auto_refresh=False) as bar:
        bar.add_task(text, total=1, what=text)


def render_html(text: str) -> str:
    """The page without plotly's own program, which is not ours."""
    series = html.Series(text, [1.0], [1.0], text=[text])
    chart = html.Chart(text, [html.Panel(text, [series], unit=text)], [html.ChartMark(1.0, text)], x_title=text)
    table = html.Table(text, [text], [[text]])
    page = html.Page(text, text, [(text, text)], [chart], [table])
    whole = html.render_page(page)
    return whole.replace(html.get_plotlyjs(), "")


def write_access_line(text: str) -> str:
    lines: list[str] = []

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404})
        await send({"type": "http.response.body", "body": b""})

    async def ignore(*_: Any) -> Any:
        return None

    header = text.encode("latin-1", "replace")
    scope = {
        "type": "http",
        "path": f"/{text}",
        "method": text,
        "http_version": "1.1",
        "headers": [(b"user-agent", header)],
    }
    asyncio.run(AccessLog(answer, lines.append)(scope, ignore, ignore))
    return "\n".join(lines)


def print_plan(text: str) -> str:
    """A plan for a cluster where others have written ``text``."""
    resource = LLMDeployment.model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": "ride"},
            "spec": {"model": {"source": "file:///m.gguf"}},
        }
    )
    made = plan._make_plan(resource, Observed(None, ()), Settings())
    metadata = {"name": "ride", "namespace": "default"}
    service = {"kind": "Service", "metadata": metadata, "spec": {"selector": {MANAGED_BY: text}}}
    return capture_print(lambda: print_lines(describe_plan(made, {"Service": service, "Deployment": text})))


Sink = Callable[[pytest.MonkeyPatch, str], str]
SINKS: dict[str, Sink] = {
    "explain": lambda patch, text: run_command(patch, explain, text, json=False, last=2),
    "explain --json": lambda patch, text: run_command(patch, explain, text, json=True, last=2),
    "status": lambda patch, text: run_command(patch, status, text),
    "get": lambda patch, text: run_command(patch, get, text, output=None),
    "get -o wide": lambda patch, text: run_command(patch, get, text, output="wide"),
    "get -o json": lambda patch, text: run_command(patch, get, text, output="json"),
    "get -o yaml": lambda patch, text: run_command(patch, get, text, output="yaml"),
    "plan": lambda _, text: print_plan(text),
    "profile": lambda patch, text: run_command(patch, profile, text, output=None),
    "a line": lambda _, text: capture_print(lambda: print_line(text)),
    "lines": lambda _, text: capture_print(lambda: print_lines([text, text])),
    "an error": lambda _, text: capture_print(lambda: print_error(f"paternoster get: {text}")),
    "up: a line": lambda _, text: show_on_console(lambda console: console.print(text, style="red"), soft_wrap=True),
    "up: rich's text": lambda _, text: show_on_console(lambda console: console.print(Text(quote_line(text)))),
    "up: records": lambda _, text: show_on_console(lambda console: show_records(console, text)),
    "up: the live view": lambda _, text: show_on_console(lambda console: show_live(console, text)),
    "a bar": lambda _, text: show_on_console(lambda console: show_bar(console, text)),
    "log: a message": lambda _, text: write_log(lambda log: log.error("a pod answers %s", text)),
    "log: a traceback": lambda _, text: write_log(lambda log: log_exception(log, text)),
    "log: another's traceback": lambda _, text: write_log(lambda log: log_with_cached_traceback(log, text)),
    "log: an uncaught exception": lambda _, text: write_log(lambda _log: raise_uncaught(text)),
    "log: JSON": lambda _, text: write_log(lambda log: log_exception(log, text), "--log-format", "json"),
    "access log": lambda _, text: write_access_line(text),
    "event": lambda _, text: Event("Warning", "Failed", text).message,
    "status: invalid": lambda _, text: json_text(invalid_status(1, {"engine": {"version": text}}, [text], "now")),
    "status: failed": lambda _, text: json_text(failed_status(1, {}, Condition("Stalled", "True", "R", text), "now")),
    "page": lambda _, text: render_html(text),
}


def capture_print(act: Callable[[], None]) -> str:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        act()
    return out.getvalue()


def json_text(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False)


def count_beginnings(written: str) -> int:
    """Lines that are not indented: tracebacks and documents in YAML have more that are."""
    return sum(not line.startswith("  ") for line in written.split("\n") if line)


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_no_sink_passes_hostile_text_on(sink: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SINKS[sink](monkeypatch, "harmless")
    written = SINKS[sink](monkeypatch, HOSTILE[kind])
    assert all(line.isprintable() for line in written.split("\n"))
    assert written.encode(), "every character has an encoding"
    assert count_beginnings(written) == count_beginnings(plain), "it begins no line"


@pytest.mark.parametrize("sink", SINKS)
def test_no_sink_reads_markup(sink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = SINKS[sink](monkeypatch, MARKUP)
    if sink == "page":
        assert "<b>z" not in written
        assert "\\u003cb\\u003ez" not in written, "plotly shows such a tag as one"
    else:
        assert "[bold red]x[/bold red]" in written
        assert "[/] :smile: <b>z</b>" in written


@pytest.mark.parametrize("output", ["json", "yaml"])
@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind != "half a surrogate"])
def test_whole_documents_lose_nothing(output: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = run_command(monkeypatch, get, HOSTILE[kind], output=output)
    document = json.loads(written) if output == "json" else yaml.safe_load(written)
    assert document == fleet_with(HOSTILE[kind])


@pytest.mark.parametrize("text", ["", "plain", "Grüße, 你好, \U0001f600 ~ \\x1b", "a b"])
def test_what_is_printable_stays_as_it_is(text: str) -> None:
    assert quote_line(text) == text


@pytest.mark.parametrize("kind", HOSTILE)
def test_quoting_twice_changes_nothing(kind: str) -> None:
    once = quote_line(HOSTILE[kind], None)
    assert quote_line(once, None) == once


def test_quotes_are_those_of_python() -> None:
    assert quote_line("\x1b]52\x07\n\u202e\ud800\x00") == r"\x1b]52\x07\n\u202e\ud800\x00"


def test_what_is_long_is_cut_and_counted() -> None:
    assert quote_line("x" * (LONGEST_LINE + 7)) == "x" * LONGEST_LINE + " ... and 7 characters more"
    lines = quote_lines("\n".join(["line"] * (MOST_LINES + 2)))
    assert lines[-2:] == ["line", "... and 9 characters more"]
    assert len(lines) == MOST_LINES + 1


def test_a_document_keeps_its_shape() -> None:
    document = {"a\n": ["\n", 1, None, True, {"b": "\x1b"}]}
    assert quote_document(document) == {"a\n": ["\\n", 1, None, True, {"b": "\\x1b"}]}


def test_text_of_our_own_keeps_its_lines_and_its_length() -> None:
    text = "a:\n  - " + "x" * (2 * LONGEST_LINE)
    assert capture_print(lambda: print_text(text)) == f"{text}\n"
