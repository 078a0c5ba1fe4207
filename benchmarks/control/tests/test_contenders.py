"""Who is compared, and that the search treats them alike."""

import pytest
from pydantic import ValidationError

from control.contenders import LAW_SPACE, contenders, with_settings
from control.scenarios import SCENARIOS
from paternoster_operator.api.v1alpha1 import ConcurrencyMode
from paternoster_simulator.policies.registry import OURS

SCENARIO = SCENARIOS["bursts"]
DOCUMENT, PROFILE = SCENARIO.document, SCENARIO.profile


def test_every_peer_is_there() -> None:
    peers = {"kubeai", "aibrix-apa", "aibrix-kpa", "production-stack", "wva", "dynamo", "ray-serve"}
    assert peers | {OURS, "without-cap-loop", "without-replica-loop", "fixed-in-hindsight"} <= contenders().keys()


@pytest.mark.parametrize("name", [name for name, it in contenders().items() if not it.in_hindsight])
def test_the_same_budget_for_everyone_and_the_default_among_it(name: str) -> None:
    chosen = contenders()[name].choices(DOCUMENT, PROFILE, 8)
    assert len(chosen) == 8
    assert chosen[0] == {}
    assert len({str(sorted(choice.items())) for choice in chosen}) == 8
    assert chosen == contenders()[name].choices(DOCUMENT, PROFILE, 8)


def test_hindsight_tries_every_size_and_cap() -> None:
    chosen = contenders()["fixed-in-hindsight"].choices(DOCUMENT, PROFILE, 2)
    assert {choice["replicas"] for choice in chosen} == set(range(2, 13))
    assert {choice["cap"] for choice in chosen} == {32, 64, 96, 128, 192, 256}
    assert len(chosen) == 66
    sizes = contenders()["without-replica-loop"].choices(DOCUMENT, PROFILE, 2)
    assert [choice["replicas"] for choice in sizes] == list(range(2, 13))


def test_the_laws_space_is_made_of_manifest_fields() -> None:
    for path, values in LAW_SPACE.items():
        for value in values:
            with_settings(DOCUMENT, {path: value})


def test_settings_go_to_their_path() -> None:
    spec = with_settings(DOCUMENT, {"autoscaling.targetUtilizationPercent": 55, "concurrency.initial": None})
    assert spec.autoscaling is not None
    assert spec.autoscaling.target_utilization_percent == 55
    assert spec.concurrency.initial is None
    assert DOCUMENT["autoscaling"] == SCENARIO.document["autoscaling"]


def test_a_path_that_is_no_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="speed"):
        with_settings(DOCUMENT, {"autoscaling.speed": 1})


def test_the_ablations_take_a_loop_out(observe, engine) -> None:
    queued = engine(running=200, waiting=400, kv_blocks_used=13_000, requests_preempted_total=0)
    worse = queued.model_copy(update={"requests_finished_total": 100, "requests_preempted_total": 90})
    few_preemptions = {**DOCUMENT, "concurrency": {"mode": "Auto", "objective": "PreemptionRate"}}

    def orders(name: str, **choice: object) -> list[tuple[int, int | None]]:
        policy = contenders()[name].policy(few_preemptions, PROFILE, choice)
        seen = [policy.decide(observe(now, [queued if now < 60 else worse] * 2)) for now in range(0, 300, 5)]
        return [(order.replicas, order.cap) for order in seen]

    assert {cap for _, cap in orders("without-cap-loop")} == {256}
    assert max(replicas for replicas, _ in orders("without-cap-loop")) > 2
    still = orders("without-replica-loop", replicas=2)
    assert {replicas for replicas, _ in still} == {2}
    assert min(cap for _, cap in still if cap) < 256
    assert ConcurrencyMode(DOCUMENT["concurrency"]["mode"]) is ConcurrencyMode.AUTO
