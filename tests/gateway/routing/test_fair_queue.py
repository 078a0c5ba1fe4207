"""The order of a fleet's queue, what senders are charged, and how long requests may wait in it."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_contract.queueing.service_counters import OUTPUT_TOKEN_COST, PROMPT_TOKEN_COST
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.routing import held_requests
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import Queue, Reject, RejectionCause, Result, RoutedRequest, Send, Turn
from paternoster_gateway.routing.fair_queue import FairQueue
from paternoster_gateway.routing.prefix_routing import TOKENS_PER_BYTE, PromptTokens

REPLICAS = [Replica(name=name, url=f"http://{name}", ready=True) for name in "ab"]
LARGEST, LONGEST = 4000, 50
"""Bytes of a prompt, tokens of an answer."""


class Fleet:
    """A balancer whose drivers send what is released at once."""

    def __init__(self, bound: int = 1, **row: object) -> None:
        self.balancer, self.now = Balancer(), 0.0
        self.row = ModelRoute(max_in_flight=bound, replicas=REPLICAS, **row)  # type: ignore[arg-type]
        self.balancer.on_table(RoutingTable(models={"m": self.row}))
        self.sent: list[RoutedRequest] = []
        """In order; each at the last of its ``tried``."""

    def open(self, sender: str, turn: Turn | None = None) -> RoutedRequest:
        request = self.balancer.open_request("m", "", self.now, sender=sender, turn=turn or Turn(size=400))
        self.route([request])
        return request

    def route(self, requests: list[RoutedRequest]) -> None:
        for request in requests:
            decision = self.balancer.route(request, self.row, self.now)
            if isinstance(decision, Send):
                self.sent.append(request)

    def end(self, request: RoutedRequest, tokens: int = 0) -> None:
        """Its answer has ``tokens`` and ends."""
        url = request.tried[-1]
        self.balancer.on_result(request, url, Result.ANSWERED, self.now)
        self.balancer.on_output(request, tokens)
        self.route(self.balancer.on_attempt_end(request, url))


def senders(requests: list[RoutedRequest]) -> str:
    return "".join(request.sender for request in requests)


def run_out(fleet: Fleet, tokens: int = 1) -> None:
    """End all requests in the order in which they were sent."""
    ended = 0
    while ended < len(fleet.sent):
        if fleet.sent[ended].in_flight:
            fleet.end(fleet.sent[ended], tokens)
        ended += 1


def test_a_flood_does_not_keep_others_waiting() -> None:
    fleet = Fleet()
    for _ in range(10):
        fleet.open("f")
    fleet.open("q")
    assert senders(fleet.sent) == "ff"
    run_out(fleet)
    assert senders(fleet.sent)[:4] in ("ffqf", "fffq")


def test_of_senders_that_were_served_alike_the_one_with_fewer_attempts_is_first() -> None:
    fleet = Fleet()
    for _ in range(10):
        fleet.open("f")
    fleet.open("q")  # its counter is now the flood's, which no token has moved when the first place is free
    for expected in ("ffq", "ffqf"):
        fleet.end(fleet.sent[0] if len(fleet.sent) == 2 else fleet.sent[2])
        assert senders(fleet.sent) == expected


def test_classes_come_before_shares() -> None:
    fleet = Fleet()
    for sender, priority in [("a", 0), ("b", 0), ("c", 5), ("a", 0), ("a", -5), ("a", -5)]:
        fleet.open(sender, Turn(priority, size=400))
    run_out(fleet)
    assert [request.turn.priority for request in fleet.sent] == [0, 0, -5, -5, 0, 5]


def test_weights_are_shares() -> None:
    fleet = Fleet()
    for sender, weight in [("a", 3.0), ("b", 1.0)] * 40:
        fleet.open(sender, Turn(weight=weight, size=400))
    run_out(fleet, LONGEST)
    assert 27 <= Counter(senders(fleet.sent)[:40])["a"] <= 32


def test_answers_count_twice_their_tokens() -> None:
    fleet = Fleet()
    for sender in "ab" * 8:
        fleet.open(sender)
    ended = 0
    while ended < len(fleet.sent):
        request = fleet.sent[ended]
        fleet.end(request, 350 if request.sender == "a" else 0)  # 700 and the prompt's 100, for 100
        ended += 1
    assert Counter(senders(fleet.sent)[:9])["b"] >= 7


def test_idle_time_is_not_saved_up() -> None:
    fleet = Fleet()
    for _ in range(20):
        fleet.open("s")
    for request in list(fleet.sent):
        fleet.end(request)
    for _ in range(8):
        fleet.end(fleet.sent[-1])
    before = len(fleet.sent)
    for _ in range(10):
        fleet.open("l")
    for _ in range(8):
        fleet.end(fleet.sent[-1])
    assert 3 <= senders(fleet.sent)[before:].count("s") <= 5, "the one that comes late takes turns from then on"


def test_a_sender_that_was_served_alone_is_not_behind_one_that_comes_later() -> None:
    fleet = Fleet()
    for _ in range(20):
        fleet.end(fleet.open("a"), 100)
    before = len(fleet.sent)
    for _ in range(10):
        fleet.open("b")
    for _ in range(4):
        fleet.open("a")
    run_out(fleet)
    assert senders(fleet.sent)[before:].index("a") <= 3


def test_an_engine_that_reports_its_prompt_corrects_the_charge() -> None:
    fleet = Fleet()
    first = fleet.open("a")
    assert first.charged_prompt == 400 * TOKENS_PER_BYTE
    fleet.balancer.on_result(first, first.tried[0], Result.ANSWERED, 0.0, tokens=PromptTokens(130, 0))
    assert first.charged_prompt == 130
    fleet.balancer.on_result(first, first.tried[0], Result.ANSWERED, 0.0, tokens=PromptTokens(10**9, 0))
    assert first.charged_prompt == 130, "no prompt of 400 bytes has so many"


def test_a_request_that_leaves_before_it_is_sent_costs_nothing() -> None:
    fleet = Fleet()
    first, _ = fleet.open("a"), fleet.open("a")
    waiting = fleet.open("b")
    released = fleet.balancer.on_attempt_end(first, first.tried[0])
    assert released == [waiting]
    assert waiting.charged_prompt
    fleet.balancer.on_disconnect(waiting)
    assert not waiting.charged_prompt
    assert fleet.balancer.in_flight.total() == 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("aaab"), st.integers(1, LARGEST), st.integers(1, LONGEST)), min_size=20, max_size=60
    ),
    st.integers(1, 3),
)
def test_service_of_backlogged_senders_stays_close(traffic: list[tuple[str, int, int]], bound: int) -> None:
    """VTC's bound: one prompt, or the answers of all that run at once."""
    fleet, outputs, service = Fleet(bound), dict[RoutedRequest, int](), Counter[str]()
    requests = []
    for sender, size, output in traffic:
        request = fleet.open(sender, Turn(size=size))
        outputs[request] = output
        requests.append(request)
    most = PROMPT_TOKEN_COST * LARGEST * TOKENS_PER_BYTE + OUTPUT_TOKEN_COST * 2 * bound * LONGEST
    waiting = {request.sender for request in requests if request not in fleet.sent}
    ended = charged = 0
    start = 0.0
    while ended < len(fleet.sent) and len(waiting) == 2:
        for request in fleet.sent[charged:]:
            service[request.sender] += PROMPT_TOKEN_COST * TOKENS_PER_BYTE * request.turn.size
        charged = len(fleet.sent)
        if ended >= 2 * bound:  # until then both began as they came, whatever they were served
            assert abs(service["a"] - service["b"] - start) <= 2 * most
        else:
            start = service["a"] - service["b"]
        request = fleet.sent[ended]
        service[request.sender] += OUTPUT_TOKEN_COST * outputs[request]
        fleet.end(request, outputs[request])
        ended += 1
        waiting = {request.sender for request in requests if request not in fleet.sent}


def test_a_request_that_no_replica_would_get_in_time_is_rejected_at_once() -> None:
    fleet = Fleet(max_held=100, hold_timeout_seconds=5)
    for _ in range(8):
        fleet.open("f")
    for _ in range(3):
        fleet.now += 2.0
        fleet.end(fleet.sent[-1])
    late = fleet.balancer.open_request("m", "", fleet.now, sender="f")
    decision = fleet.balancer.route(late, fleet.row, fleet.now)
    assert isinstance(decision, Reject)
    assert (decision.cause, decision.retry_after) == (RejectionCause.FULL, 3)
    other = fleet.balancer.open_request("m", "", fleet.now, sender="q")
    assert isinstance(fleet.balancer.route(other, fleet.row, fleet.now), Queue), "others have filled the queue"


@pytest.mark.parametrize(("deadline", "cause"), [(2.0, RejectionCause.DEADLINE), (9.0, RejectionCause.FULL)])
def test_a_request_waits_until_its_deadline_at_most(deadline: float, cause: RejectionCause) -> None:
    fleet = Fleet(hold_timeout_seconds=5)
    fleet.open("a")
    fleet.open("a")
    waiting = fleet.open("a", Turn(deadline_seconds=deadline))
    end = min(deadline, 5.0)
    assert isinstance(fleet.balancer.route(waiting, fleet.row, end - 0.1), Queue)
    decision = fleet.balancer.route(waiting, fleet.row, end)
    assert isinstance(decision, Reject)
    assert decision.cause is cause


def test_where_no_place_is_left_a_lower_class_gives_way() -> None:
    fleet = Fleet(max_held=2)
    for priority in (0, 0, 5, 7):
        fleet.open("a", Turn(priority))
    urgent = fleet.balancer.open_request("m", "", 0.0, sender="a", turn=Turn(5))
    decision = fleet.balancer.route(urgent, fleet.row, 0.0)
    assert isinstance(decision, Queue)
    assert decision.evicted is not None
    assert decision.evicted.turn.priority == 7
    equal = fleet.balancer.open_request("m", "", 0.0, sender="a", turn=Turn(5))
    assert isinstance(fleet.balancer.route(equal, fleet.row, 0.0), Reject)


def test_tokens_of_an_answer_make_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FairQueue] = []

    def make_queue() -> FairQueue:
        made.append(FairQueue())
        return made[-1]

    monkeypatch.setattr(held_requests, "FairQueue", make_queue)
    fleet = Fleet()
    request = fleet.open("a")
    for _ in range(10):
        fleet.balancer.on_output(request, 1)
    assert len(made) == 1


def test_a_sender_with_a_small_part_gets_a_place_beyond_the_bound() -> None:
    fleet = Fleet(2, spare_in_flight=1)
    for _ in range(6):
        fleet.open("flood")
    assert senders(fleet.sent) == "flood" * 4
    assert fleet.balancer.count_held("m") == 2
    fleet.open("quiet")
    assert fleet.sent[-1].sender == "quiet"
    assert sorted(fleet.balancer.in_flight.values()) == [2, 3]
    fleet.end(fleet.sent[-1])
    assert fleet.balancer.count_held("m") == 2, "the place beyond the bound is no other's"


def test_a_place_beyond_the_bound_is_not_for_a_lower_class() -> None:
    fleet = Fleet(1, spare_in_flight=1)
    for _ in range(3):
        fleet.open("flood", Turn(size=400))
    fleet.open("quiet", Turn(priority=1, size=400))
    assert senders(fleet.sent) == "flood" * 2
    fleet.open("quiet", Turn(size=400))
    assert fleet.sent[-1].sender == "quiet"


@given(st.lists(st.tuples(st.sampled_from(["open", "end", "leave"]), st.sampled_from("abcde")), max_size=60))
def test_a_place_beyond_the_bound_is_for_senders_below_an_equal_part(steps: list[tuple[str, str]]) -> None:
    """Whatever was sent, has ended or left before."""
    fleet, requests = Fleet(bound=2), list[RoutedRequest]()
    for step, sender in steps:
        own = [request for request in requests if request.sender == sender]
        if step == "open":
            requests.append(fleet.open(sender))
        elif own and step == "end" and own[0].in_flight:
            fleet.end(own[0])
            requests.remove(own[0])
        elif own and step == "leave":
            fleet.route(fleet.balancer.on_disconnect(own[-1]))
            requests.remove(own[-1])
    asking = fleet.balancer.open_request("m", "", fleet.now, sender="f", turn=Turn(size=400))
    attempts = Counter(request.sender for request in requests for _ in request.in_flight)
    queue = fleet.balancer._held.queue_of(asking)
    for request in (asking, *requests):
        present = {each.sender for each in requests} | {request.sender}
        below = attempts[request.sender] * len(present) < attempts.total()
        first = min(
            (each.arrival for each in requests if each.sender == request.sender and not each.in_flight),
            default=request.arrival,
        )
        assert queue.may_exceed_bound(request) == (below and first >= request.arrival)
