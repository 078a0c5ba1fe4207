"""Records of calls: whatever happens to a call, its document is bounded and names one cause."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_contract.request_phases import RequestPhases, WaitReason
from paternoster_contract.routing import ModelRoute, Replica
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.call.actions import AwaitTurn, EndInError, Forward, Hold, StartAttempt
from paternoster_gateway.call.attempt import Attempt, ReplicaAnswer
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.prefixes.prefix_index import NO_PREFIX
from paternoster_gateway.records.call_record import MAX_RECORD_BYTES, CallRecord, CallRecords
from paternoster_gateway.routing.decisions import RoutedRequest
from paternoster_gateway.routing.prefix_routing import Pick, PromptTokens
from paternoster_gateway.routing.retry_budget import RetryBudget

REPLICAS = [Replica(name=f"{i}" + "n" * 300, url=f"http://{i}" + "u" * 300, ready=i > 0) for i in range(5)]
ROW = ModelRoute(replicas=REPLICAS)
SECONDS = st.floats(0, 1e6)
PHASES = st.builds(RequestPhases, SECONDS, st.sampled_from(WaitReason), SECONDS, st.integers(0, 999_999))
ERROR = GatewayError(503, "ServiceUnavailableError", "x")


@given(PHASES)
def test_phases_are_read_as_they_are_written(phases: RequestPhases) -> None:
    read = RequestPhases.decode(phases.encode())
    assert read is not None
    assert read.encode() == phases.encode()
    assert read[1::2] == phases[1::2]


@given(st.text() | st.text("queue=0.1, waited_for=slots, prefill=0.1, preemptions=0"))
def test_other_text_is_no_phases(text: str) -> None:
    read = RequestPhases.decode(text)
    assert read is None or read.encode().split("=")[0] == "queue"


def record_calls(data: st.DataObject, records: CallRecords, number: int) -> None:
    """One call to which anything happens."""
    request = RoutedRequest("m" * 300, "fleet", "m", "s", RetryBudget())
    call = Call("/v1/" + "p" * 500, "m", b"{}", {}, is_stream=data.draw(st.booleans()))
    record = CallRecord(records, call, ClientAdmission("m", "fleet"), request, f"{number}" * 60, 0.0, 1e9)
    now = 0.0
    for kind in data.draw(st.lists(st.sampled_from(["hold", "turn", "attempt", "forward", "error"]), max_size=30)):
        replica = data.draw(st.sampled_from(REPLICAS))
        answer = ReplicaAnswer(data.draw(st.sampled_from([200, 500])), [], replica.url, 1)
        action: Any = {
            "hold": Hold(1.0), "turn": AwaitTurn(), "attempt": StartAttempt(replica, call), "forward": Forward(answer),
            "error": EndInError(ERROR, within_frame=False),
        }[kind]  # fmt: skip
        costs = tuple((each.url, data.draw(SECONDS)) for each in REPLICAS)
        request.pick = data.draw(st.sampled_from([None, Pick(NO_PREFIX, 5, 1.0, 5, costs)]))
        record.begin_action(action, data.draw(st.sampled_from([None, ROW])), 3, now)
        now += data.draw(SECONDS)
        if data.draw(st.integers(0, 9)) == 0:
            break  # its client left
        outcome = data.draw(st.sampled_from([answer, ERROR]))
        event = Attempt(replica.url, outcome, "unreachable", tokens=PromptTokens(100, 50), phases=data.draw(PHASES))
        record.end_action(action, event if kind == "attempt" else None, now)
    record.end(data.draw(st.none() | PHASES), now)
    record.end(None, now + 1)


@settings(max_examples=60)
@given(st.data())
def test_whatever_happens_a_record_is_bounded_and_names_a_cause(data: st.DataObject) -> None:
    records = CallRecords(capacity=3)
    for number in range(data.draw(st.integers(1, 6))):
        record_calls(data, records, number)
    assert len(records) <= 3
    assert records.at_replica == {}
    assert all(len(row.document) <= MAX_RECORD_BYTES for row in records._rows.values())
    for document in records.list_slowest(100):
        assert json.loads(json.dumps(document)) == document
        assert document["cause"]["name"]
        assert document["cause"]["why"]
        assert records.find(document["id"])
