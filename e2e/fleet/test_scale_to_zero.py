"""A fleet without requests scales to zero on a cluster, and ``paternoster explain`` gives the reason."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paternoster_e2e.kubectl import Document, condition, until

pytestmark = pytest.mark.timeout(600)

PATERNOSTER = Path(sys.executable).with_name("paternoster")


def to_zero(**fields: Any) -> Document:
    return {"minReplicas": 0, "maxReplicas": 1, "scaleToZero": {"enabled": True, **fields}}


def asleep(fleet: Any) -> bool:
    return fleet.seen() and condition(fleet.get(), "Ready").get("reason") == "ScaledToZero" and not fleet.pods()


def test_a_held_request_wakes_a_sleeping_fleet_that_falls_asleep_again(fleet: Any) -> None:
    fleet.apply(autoscaling=to_zero(idleSeconds=5), drain={"timeoutSeconds": 5})
    until(lambda: asleep(fleet), "the fleet begins asleep", 60)
    assert fleet.chat().status_code == 200, "held until the first engine serves"
    until(lambda: asleep(fleet), "the fleet falls asleep", 120)
    explained = explain(fleet)
    made = [(d["reason"], d["applied"]) for d in reversed(explained["decisions"]) if d["loop"] == "Replicas"]
    assert [reason for reason, applied in made if applied] == ["ActivatedByRequest", "ScaleToZeroIdle"]
    assert explained["startup"]["observedStarts"] == 1
    reasons = {event["reason"] for event in fleet.kubectl.list("events", fleet.namespace)}
    assert {"Activated", "ScaledToZero"} <= reasons


def test_a_refused_request_wakes_it_as_well(fleet: Any) -> None:
    fleet.apply(autoscaling=to_zero(coldRequestPolicy="Reject"))
    until(lambda: asleep(fleet), "the fleet begins asleep", 60)
    # The gateway hears of a new fleet a moment later, and has no model of its name before.
    until(lambda: fleet.chat().status_code == 503, "a request is refused", 30)
    fleet.until_ready(1)
    assert fleet.chat().status_code == 200


def explain(fleet: Any) -> Document:
    """What the command says with nothing but the cluster's kubeconfig."""
    done = subprocess.run(
        [PATERNOSTER, "explain", fleet.name, f"--namespace={fleet.namespace}", "--kubeconfig", "--json"],
        env=fleet.kubectl.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found: Document = json.loads(done.stdout)
    return found
