"""What the comparison of token budgets asks for, and which of its numbers it counts."""

import argparse

import pytest

from control.token_budget import ENGINES, MODES, build_manifest, within
from paternoster_operator.api.v1alpha1 import LLMDeployment


@pytest.mark.parametrize("engine", ENGINES)
def test_the_modes_differ_in_the_mode_alone(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.vllm_fleet.checkpoint", lambda: "/models/model")
    args = argparse.Namespace(engine=engine, capacity=256, threads=1, limit=800)
    fixed, auto = (LLMDeployment.model_validate(build_manifest(mode, args)).spec for mode in MODES)
    assert (fixed.engine.runtime.type, fixed.engine.max_batched_tokens, fixed.slo.itl_p95_milliseconds) == (
        engine,
        256,
        800,
    )
    assert (fixed.concurrency.token_budget.mode, auto.concurrency.token_budget.mode) == MODES
    same = fixed.concurrency.token_budget.model_copy(update={"mode": auto.concurrency.token_budget.mode})
    concurrency = fixed.concurrency.model_copy(update={"token_budget": same})
    assert fixed.model_copy(update={"concurrency": concurrency}) == auto


def test_what_comes_between_two_turns_is_not_counted() -> None:
    points = [(0.5, 0.1), (1.0, 0.2), (2.0, 0.3), (2.5, 0.4), (4.0, 0.5)]
    assert within(points, [(1.0, 2.0), (3.0, 5.0)]) == [200.0, 300.0, 500.0]
