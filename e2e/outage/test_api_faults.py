"""A few short faults of the API server, one of each scope; ``python -m outage.api_faults`` has all, and long ones."""

from pathlib import Path

from outage.api_faults import EVERYTHING, ONE_NAMESPACE, PODS, meet_all
from paternoster_contract import labels
from paternoster_e2e.fakes.failing_proxy import RESET, SILENCE, ApiFault
from paternoster_e2e.kubectl import Kubectl
from paternoster_e2e.objects import apply_crd

SECONDS = 3.0
FAULTS = (
    (ApiFault(503), EVERYTHING, SECONDS),
    (ApiFault(403), ONE_NAMESPACE, SECONDS),
    (ApiFault(429, retry_after=1), PODS, SECONDS),
    (ApiFault(RESET), labels.PLURAL, SECONDS),
    (ApiFault(SILENCE), EVERYTHING, SECONDS),
)


def test_both_operators_stay_and_work_afterwards(kubectl: Kubectl, tmp_path: Path) -> None:
    apply_crd(kubectl)
    reports = list(meet_all(kubectl, FAULTS, 1, tmp_path))
    assert len(reports) == len(FAULTS)
    assert [each for each in reports if each.wrong] == []
