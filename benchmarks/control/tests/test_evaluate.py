"""An evaluation against the simulation it is made of, and what is remembered of it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from control.contenders import contenders
from control.evaluate import Memory, Warmed, average, digest, evaluate, score
from control.scenarios import SEEDS, Scenario
from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.policies.fixed import FixedPolicy
from paternoster_simulator.policies.policy import Action
from paternoster_simulator.simulation import simulate_fleet


class Eager:
    """Wants five replicas and a cap of 7 from the first observation on."""

    period_seconds = 5.0

    def decide(self, observation: Observation) -> Action:
        return Action(5, 7)


def test_a_warm_up_leaves_replicas_alone_and_caps_not(observe) -> None:
    policy = Warmed(Eager(), seconds=60.0, replicas=2)
    assert policy.period_seconds == 5.0
    assert policy.decide(observe(59.9, [])) == Action(2, 7)
    assert policy.decide(observe(60.0, [])) == Action(5, 7)


def test_hours_and_requests_count_after_the_warm_up(minute: Scenario) -> None:
    fixed = contenders()["fixed-in-hindsight"]
    result = evaluate(minute, "tune", fixed, {"replicas": 2, "cap": 256}, None)
    rows = list(minute.requests("tune", None))
    assert result.requests == sum(row.arrival_s >= 20 for row in rows)
    assert result.lost == 0
    assert result.slo_attainment == 1.0
    outcome = simulate_fleet(minute.profile, rows, FixedPolicy(2), start_replicas=2, duration=60.0)
    # 8B profile: one GPU a replica.
    assert result.gpu_hours == pytest.approx(2 * (outcome.seconds - 20) / 3600)
    assert (result.scale_events, result.preemption_rate, result.recomputed_tokens) == (0, 0.0, 0)


def test_a_part_is_judged_by_all_of_its_draws(minute: Scenario) -> None:
    fixed, choice = contenders()["fixed-in-hindsight"], {"replicas": 2, "cap": 256}
    each = [evaluate(minute, "test", fixed, choice, None, [draw]) for draw in range(len(SEEDS["test"]))]
    assert len({score.requests for score in each}) > 1, "draws differ"
    whole = evaluate(minute, "test", fixed, choice, None)
    assert whole == average(each)
    assert whole.requests == pytest.approx(sum(score.requests for score in each) / len(each))


def test_a_request_is_within_its_objective_only_in_both_ways(minute: Scenario) -> None:
    outcome = simulate_fleet(
        minute.profile, minute.requests("tune", None), FixedPolicy(2), start_replicas=2, duration=60.0
    )
    counts = outcome.records.arrival >= 20
    middle = float(np.median(outcome.records.ttft[counts])) * 1000
    outcome.objective = outcome.objective.model_copy(update={"ttft_ms": middle, "itl_ms": 1000.0})
    half = score(outcome, minute)
    assert 0.4 < half.ttft_attainment < 0.7
    assert half.itl_attainment == 1.0
    assert half.slo_attainment == half.ttft_attainment
    assert half.ttft_p99_ms > middle


def test_a_lost_request_misses(minute: Scenario) -> None:
    held = replace(minute, engine={"maxQueuedRequests": 1, "maxNumSeqs": 1})
    result = evaluate(held, "tune", contenders()["fixed-in-hindsight"], {"replicas": 2, "cap": 1}, None)
    assert result.lost > 0
    assert result.slo_attainment <= 1 - result.lost / result.requests


def test_parts_and_choices_are_different_questions(minute: Scenario, tmp_path: Path) -> None:
    memory, kubeai = Memory(tmp_path), contenders()["kubeai"]
    memory_paths = {
        memory.path(minute, "tune", kubeai, {}),
        memory.path(minute, "test", kubeai, {}),
        memory.path(minute, "test", kubeai, {}, [0]),
        memory.path(minute, "tune", kubeai, {"target_requests": 8}),
        memory.path(minute, "tune", contenders()["ray-serve"], {}),
        memory.path(replace(minute, start_replicas=3), "tune", kubeai, {}),
    }
    assert len(memory_paths) == 6
    assert memory.path(minute, "tune", kubeai, {}) in memory_paths


def test_a_score_comes_back_as_it_was(minute: Scenario, tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    path = memory.path(minute, "tune", contenders()["kubeai"], {})
    assert memory.recall(path) is None
    result = evaluate(minute, "tune", contenders()["kubeai"], {}, None)
    memory.write_score(path, result)
    assert memory.recall(path) == result
    assert json.loads(path.read_text())["requests"] == result.requests


def test_the_digest_is_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in (("first_of_two", "a = 1\n"), ("second_of_two", "a = 2\n")):
        (tmp_path / f"{name}.py").write_text(text)
    assert digest(("first_of_two",)) != digest(("second_of_two",))
    assert digest(("first_of_two", "second_of_two")) == digest(("second_of_two", "first_of_two"))
    with pytest.raises(ModuleNotFoundError):
        digest(("none_of_two",))


def test_the_digest_of_a_package_leaves_its_policies_to_those_who_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in (("plant_a", "a = 1\n"), ("plant_b", "a = 2\n")):
        (tmp_path / name / "policies").mkdir(parents=True)
        for folder in (tmp_path / name, tmp_path / name / "policies"):
            (folder / "__init__.py").touch()
        (tmp_path / name / "policies" / "steady.py").write_text(text)
    assert digest(("plant_a",)) == digest(("plant_b",))
    assert digest(("plant_a.policies",)) != digest(("plant_b.policies",))
    assert digest(("plant_a.policies.steady",)) != digest(("plant_b.policies.steady",))
