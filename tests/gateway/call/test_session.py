"""Decisions of the session of a call, event by event, without a socket or a clock."""

from typing import Any

import pytest

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_contract.stream_journal import NOT_CONTINUED
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.admission.quarantine import Quarantine
from paternoster_gateway.call.actions import (
    Break,
    BreakCause,
    Discard,
    EndInError,
    Forward,
    Pause,
    ProbeReplicas,
    StartAttempt,
)
from paternoster_gateway.call.attempt import Attempt, ReplicaAnswer
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.observer import CallObserver
from paternoster_gateway.call.registry import SessionRegistry
from paternoster_gateway.call.router import Router
from paternoster_gateway.call.session import CallSession
from paternoster_gateway.call.suspicion import Suspicion
from paternoster_gateway.errors import GatewayError, unavailable_error
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import Result

FRAME = b": journal [[0,null,[1]]]\ndata: 1\n\n"


@pytest.fixture
def session() -> CallSession:
    """The session of a stream before three replicas."""
    router = Router(Balancer(), lambda: 0.0, lambda: 0.0, lambda _: None)
    replicas = [Replica(name=name, url=name, ready=True) for name in "abc"]
    router.change_table(RoutingTable(models={"m": ModelRoute(replicas=replicas)}))
    registry = SessionRegistry(router, Quarantine(), CallObserver(), lambda _: None)
    admission, call = ClientAdmission("m"), Call("/v1/completions", "m", b"{}", {}, is_stream=True)
    return CallSession(registry, call, admission, router.open_request(admission))


def sent(action: object) -> StartAttempt:
    assert isinstance(action, StartAttempt)
    return action


def answer(action: StartAttempt, status: int = 200, **fields: Any) -> Attempt:
    stream: dict[str, Any] = {"numerics": "fp", "is_stream": True} if status == 200 else {}
    outcome = ReplicaAnswer(status, [], action.replica.url, 1, **stream)
    return Attempt(action.replica.url, outcome, result=Result.ANSWERED, **fields)


def stop(action: StartAttempt) -> Attempt:
    error = unavailable_error("gone")
    suspicion = Suspicion.POSSIBLE
    return Attempt(
        action.replica.url, error, "unreachable", Result.UNREACHABLE, suspicion=suspicion, is_stop=True
    )  # fmt: skip


def test_a_failed_attempt_is_repeated_and_a_broken_stream_goes_on_behind_its_frames(session: CallSession) -> None:
    first = sent(session.advance())
    second = sent(session.advance(stop(first)))
    assert second.replica != first.replica
    forwarded = session.advance(answer(second))
    assert isinstance(forwarded, Forward)
    assert session.read_piece(FRAME + FRAME) == b"data: 1\n\n" * 2
    assert isinstance(session.advance(Break(BreakCause.CLOSED)), Discard)
    third = sent(session.advance())
    assert third.replica not in (first.replica, second.replica)
    assert third.call.journal == b"[[0,null,[1]]]\n[[0,null,[1]]]"
    assert isinstance(session.advance(answer(third)), Forward)
    assert session.read_piece(FRAME) == b"data: 1\n\n"
    assert session.advance(Pause.ENDED) is None


def test_a_call_that_two_replicas_stopped_with_alone_is_sent_to_no_other(session: CallSession) -> None:
    first = sent(session.advance())
    second = sent(session.advance(stop(first)))
    probe = session.advance(stop(second))
    assert isinstance(probe, ProbeReplicas)
    assert {*probe.urls} == {first.replica.url, second.replica.url}
    with pytest.raises(GatewayError) as caught:
        session.advance([])
    assert caught.value.code == "request_quarantined"


def test_a_call_goes_on_whose_replicas_answer_a_probe(session: CallSession) -> None:
    probe = session.advance(stop(sent(session.advance(stop(sent(session.advance()))))))
    assert isinstance(probe, ProbeReplicas)
    assert isinstance(session.advance(probe.urls), StartAttempt)


def test_the_answer_to_a_suspect_is_forwarded_without_a_turn(session: CallSession) -> None:
    """Others beside it at both stops may be the cause, too, so that it has a turn; an answer needs none."""
    action = session.advance()
    for _ in range(2):
        failed = sent(action)
        session._registry.stops.record_stop("", failed.replica.url, 0.0, b"another")
        action = session.advance(stop(failed))
    assert isinstance(action, ProbeReplicas)
    third = sent(session.advance([]))
    assert third.seconds_alone is not None
    assert isinstance(session.advance(answer(third)), Forward)
    assert not session._registry.probation.fleets


def test_a_replica_that_answered_no_probe_is_not_acquitted_once_it_has_started_again(session: CallSession) -> None:
    stops, action = session._registry.stops, session.advance()
    for _ in range(2):
        failed = sent(action)
        stops.record_stop("", failed.replica.url, 0.0, b"another")
        action = session.advance(stop(failed))
    assert isinstance(action, ProbeReplicas)
    third = sent(session.advance([]))
    probe = session.advance(stop(third))
    assert isinstance(probe, ProbeReplicas)
    assert probe.urls == (third.replica.url,)
    with pytest.raises(GatewayError) as caught:
        session.advance([])
    assert caught.value.code == "request_quarantined"


def test_a_stream_that_is_a_suspect_beside_others_goes_on_alone(session: CallSession) -> None:
    stops = session._registry.stops
    assert isinstance(session.advance(answer(sent(session.advance()))), Forward)
    session.read_piece(FRAME)
    assert isinstance(session.advance(Break(BreakCause.CLOSED)), Discard)
    action = session.advance()
    for turn in (False, False):
        failed = sent(action)
        assert (failed.seconds_alone is not None) is turn
        stops.record_stop("", failed.replica.url, 0.0, b"another")
        action = session.advance(stop(failed))
    assert isinstance(action, ProbeReplicas)
    session.advance([])
    assert session._registry.probation.has_turn(session.request)


def test_a_stream_that_no_replica_can_continue_ends_in_an_error_that_names_why(session: CallSession) -> None:
    assert isinstance(session.advance(answer(sent(session.advance()))), Forward)
    assert isinstance(session.advance(Break(BreakCause.CLOSED)), Discard)
    refusal = answer(sent(session.advance()), 400)
    assert isinstance(refusal.outcome, ReplicaAnswer)
    refusal.outcome.headers.append((NOT_CONTINUED.lower().encode(), b"presence_penalty"))
    assert isinstance(session.advance(refusal), Discard)
    action = session.advance()
    assert isinstance(action, EndInError)
    assert action.error.status == 502
    assert str(action.error).endswith("none continues presence_penalty.")
    assert session.advance() is None


def test_closing_a_session_ends_its_request(session: CallSession) -> None:
    sent(session.advance())
    assert session.request.in_flight
    for _ in range(2):
        session.close()
    assert not session.request.in_flight


def test_a_stream_that_fails_to_move_on_is_reported_as_answered_where_it_is(session: CallSession) -> None:
    router, reports = session._router, []
    report = router.report_result
    router.report_result = lambda request, url, result, **fields: (  # type: ignore[method-assign]
        reports.append((url, result)), report(request, url, result, **fields),
    )[1]  # fmt: skip

    def drain(*names: str) -> None:
        replicas = [Replica(name=name, url=name, ready=name not in names, draining=name in names) for name in "abc"]
        router.change_table(RoutingTable(models={"m": ModelRoute(replicas=replicas, hand_over=True)}))

    first = sent(session.advance())
    session.advance(answer(first))
    session.read_piece(FRAME)
    drain(first.replica.url)
    second = sent(session.advance(Pause.MAY_MOVE))
    assert isinstance(session.advance(answer(second)), Discard)
    assert isinstance(session.advance(), Forward)
    drain(first.replica.url, second.replica.url)
    third = sent(session.advance(Pause.MAY_MOVE))
    assert isinstance(session.advance(stop(third)), Forward)
    session.read_piece(FRAME)
    assert (second.replica.url, Result.ANSWERED) in reports
