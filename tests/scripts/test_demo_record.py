import importlib.util
import json
import sys
from pathlib import Path

import pytest

from paternoster_contract.labels import API_VERSION, KIND
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.autoscaling.control_loop import LoopState, LoopStates
from paternoster_operator.autoscaling.decision import LIVE_CAP, REPLICAS, LoopDecision, Reason
from paternoster_operator.autoscaling.loops.limits import ReplicaState
from paternoster_operator.cluster.port import Key
from paternoster_operator.fleet import Fleet
from paternoster_operator.plan.plan import FleetMemory
from paternoster_operator.terminal.snapshot import Snapshot


@pytest.fixture(scope="module")
def demo_record():
    path = Path(__file__).parents[2] / "scripts" / "demo_record.py"
    spec = importlib.util.spec_from_file_location("demo_record", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def line(time: float, decisions: list[LoopDecision]) -> str:
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "tiny"},
        "spec": {"model": {"source": "file:///m.gguf"}},
    }
    states = LoopStates({LIVE_CAP: LoopState(target=12), REPLICAS: ReplicaState(target=2, since=0.0)})
    fleet = Fleet(LLMDeployment.model_validate(document), FleetMemory(states))
    snapshot = Snapshot.from_fleet(Key("default", "tiny"), fleet)
    document = {"time": time, "endpoint": "http://127.0.0.1:9", "deployments": [snapshot.to_document(decisions)]}
    return json.dumps(document) + "\n"


def cut(reason: Reason, *, applied: bool = True) -> LoopDecision:
    return LoopDecision(LIVE_CAP, current=16, target=12, recommended=12, reason=reason, message="m", applied=applied)


def test_lines_of_the_operators_record_are_understood(demo_record):
    record = demo_record.Record()
    assert record.feed(line(10.0, [])) == []
    made = record.feed(line(11.5, [cut(Reason.PREEMPTION_ABOVE_TARGET)]))
    assert made == record.decisions
    assert (record.begin, record.seconds, record.endpoint) == (10.0, 1.5, "http://127.0.0.1:9")
    assert (record.samples[-1].desired, record.samples[-1].cap) == (2, 12)
    assert record.path("cap") == [12, 12]
    assert record.path("ready") == []
    assert made[0].change == "16 → 12"
    assert made[0].document(record.begin)["seconds"] == 1.5


@pytest.mark.parametrize(
    ("decision", "counts"),
    [
        (cut(Reason.PREEMPTION_ABOVE_TARGET), True),
        (cut(Reason.PREEMPTION_ABOVE_TARGET, applied=False), False),
        (cut(Reason.AT_FLOOR), False),
    ],
)
def test_only_an_applied_cut_for_preemptions_counts(demo_record, decision, counts):
    [made] = demo_record.Record().feed(line(0.0, [decision]))
    assert made.lowers_cap_on_preemption is counts
