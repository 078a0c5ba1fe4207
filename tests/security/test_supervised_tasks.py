"""Background tasks of gateway and operator: a failure is logged, counted and tried again; none runs without that."""

import ast
import asyncio
import logging
from importlib.util import find_spec
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from paternoster_contract import supervise as supervision
from paternoster_contract.supervise import supervise_task
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_operator.metrics import OperatorMetrics

PACKAGES = ("paternoster_gateway", "paternoster_operator")
STARTERS = {"create_task", "ensure_future", "run_coroutine_threadsafe"}
AWAITED = {
    ("forwarded_answer.py", "__init__"), ("liveness.py", "_answers_probe"), ("program.py", "_run_once"),
    ("table.py", "build_own"),
}  # fmt: skip
"""File and function that start a task whose result is taken, there or at the end of what it is for."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "FIRST_BACKOFF_SECONDS", 0.01)


def _bare_tasks(path: Path) -> list[str]:
    """Where tasks are started in ``path``, less what is awaited where it is started."""
    found = []
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for call in ast.walk(function):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute | ast.Name):
                continue
            name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id
            if name in STARTERS and (path.name, function.name) not in AWAITED:
                found.append(f"{path.name}:{call.lineno} {name} in {function.name}")
    return found


def test_no_task_runs_without_supervision() -> None:
    folders = [Path(find_spec(package).submodule_search_locations[0]) for package in PACKAGES]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    assert len(files) > 50
    assert [line for path in files for line in _bare_tasks(path)] == []


async def test_work_that_fails_is_logged_counted_and_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise KeyError("broken")

    with caplog.at_level(logging.ERROR):
        await supervise_task(work, "some-work")
    assert runs == 3
    assert supervision.failures["some-work"] == 2
    assert "the task 'some-work' failed; again in" in caplog.text
    assert "KeyError: 'broken'" in caplog.text
    for metrics, name in ((GatewayMetrics(), "gateway"), (OperatorMetrics(), "operator")):
        text = generate_latest(metrics.registry).decode()
        assert f'paternoster_{name}_task_failures_total{{task="some-work"}} 2.0' in text


async def test_work_that_is_not_begun_again_raises() -> None:
    async def work() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await supervise_task(work, "once", again=False)
    assert supervision.failures["once"] == 1


async def test_cancelled_work_is_no_failure() -> None:
    task = supervise_task(asyncio.Event().wait, "cancelled")  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert supervision.failures["cancelled"] == 0
