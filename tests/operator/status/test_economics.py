"""Money, exactly."""

from collections.abc import Callable
from typing import Any

from paternoster_operator.api.types.status import EconomicsStatus
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.observed import Observed
from paternoster_operator.pods.view import PodView
from paternoster_operator.report.status import compute_economics

Resource = Callable[..., LLMDeployment]
PRICED: dict[str, Any] = {"cost": {"gpuHour": "2.49", "currency": "EUR"}, "resources": {"gpu": {"count": 2}}}


def pod(name: str, *, phase: str = "Running", waiting: str | None = None, deleting: bool = False) -> PodView:
    return PodView(name, None, phase, False, deleting, 0, waiting, "")


def economics_of(resource: Resource, *pods: PodView, tokens: int = 0) -> dict[str, Any]:
    found = compute_economics(resource(**PRICED).spec, Observed(None, pods), {"generationTokensPerSecond": tokens})
    assert found is not None
    EconomicsStatus.model_validate(found)
    return found


def test_without_a_price_nothing_is_told(resource: Resource) -> None:
    assert compute_economics(resource().spec, Observed(None, ()), {"generationTokensPerSecond": 9}) is None


def test_gpus_cost_while_pods_hold_them(resource: Resource) -> None:
    pods = (
        pod("loads", phase="Pending", waiting="ContainerCreating"),
        pod("serves"),
        pod("drains", deleting=True),
        pod("waits", phase="Pending", waiting="Unschedulable"),
        pod("ended", phase="Succeeded"),
    )
    assert economics_of(resource, *pods) == {
        "basis": "Allocation",
        "currency": "EUR",
        "gpus": 6,
        "costPerHour": "14.9400",
    }


def test_tokens_share_the_price(resource: Resource) -> None:
    # 4.98 an hour over 1000 * 3600 tokens an hour
    assert economics_of(resource, pod("a"), tokens=1000)["costPerMillionOutputTokens"] == "1.3833"


def test_no_replicas_cost_nothing(resource: Resource) -> None:
    assert economics_of(resource, tokens=0)["costPerHour"] == "0.0000"
