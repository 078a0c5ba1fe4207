"""Requests in progress at a port: what they hold is counted for their parties, and who gives way is refused."""

from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_http.errors.refusal import Refusal
from paternoster_http.open_requests import UNKNOWN, OpenRequest, OpenRequests, State, charge_request


@dataclass
class Port:
    """One port, and the requests of it that gave way."""

    requests: OpenRequests
    gave_way: list[OpenRequest] = field(default_factory=list)

    def open(self, address: str = "a", body: int = 0, state: State | None = State.UPLOADING) -> OpenRequest:
        request = self.requests.add_request(address, lambda request, _: self.gave_way.append(request))
        request.take_place()
        request.hold_body(body)
        request.set_state(state)
        return request

    def held(self) -> tuple[int, int]:
        return self.requests.places.shares.held_by(), self.requests.bytes.shares.held_by()


def port(places: int = 100, size: int = 1000) -> Port:
    return Port(OpenRequests(places, size))


def test_the_own_upload_that_has_waited_longest_gives_way() -> None:
    where = port()
    whole = where.open("a", 400, State.UNANSWERED)
    first, second = where.open("a", 200), where.open("a", 200)
    first.set_state(State.UPLOADING)  # some of it has come just now
    where.open("a", 100)
    assert where.gave_way == [second]
    assert where.held() == (3, 700)
    for request in (whole, first, second):
        request.release_all()
        request.release_all()
    assert where.held() == (1, 100)


def test_none_gives_way_where_that_is_not_enough() -> None:
    where = port()
    where.open("a", 800, State.UNANSWERED)
    upload = where.open("a", 50)
    new = where.requests.add_request("a", lambda *_: None)
    with pytest.raises(Refusal, match="this client has 850 of 1000"):
        new.hold_body(200)
    assert where.gave_way == []
    assert upload.held[where.requests.bytes] == 50


def test_those_of_a_larger_party_give_way_that_wait_for_their_client_before_those_that_have_no_answer_yet() -> None:
    where = port(size=320)
    answered = where.open("noisy", 190, State.UNANSWERED)
    answered.cycle = SimpleNamespace(response_started=True)
    unanswered = [where.open("noisy", 20, State.UNANSWERED) for _ in range(2)]
    blocked = where.open("noisy")
    blocked.hold_unread(30)
    upload = where.open("noisy", 20)
    quiet = where.open("quiet")
    for size, gave_way in ((10, []), (30, [upload, blocked]), (20, [upload, blocked, unanswered[1]])):
        quiet.hold_body(size)
        assert where.gave_way == gave_way
    with pytest.raises(Refusal):
        quiet.hold_body(200)
    assert where.gave_way == [upload, blocked, unanswered[1]]


def test_what_a_client_does_not_read_is_counted_until_it_reads() -> None:
    where = port()
    request = where.open("a", 100, None)
    request.hold_unread(300)
    request.hold_unread(200)
    assert where.held() == (1, 300)
    with pytest.raises(Refusal):
        request.hold_unread(900)
    request.hold_unread(0)
    assert where.held() == (1, 100)
    request.release_all()
    assert where.held() == (0, 0)


def test_a_request_is_counted_for_the_party_that_it_turns_out_to_be_of() -> None:
    where = port()
    request = where.open("a", 100)
    scope = {"type": "http", "extensions": {"paternoster.open_request": request}}
    charge_request(scope, ("fleet", "tenant"))
    shares = where.requests.bytes.shares
    assert shares.held_by((UNKNOWN,)) == 0
    assert shares.held_by(("fleet", "tenant")) == shares.held_by() == 100
    request.hold_body(50)
    assert shares.held_by(("fleet",)) == 150
    request.release_all()
    charge_request(scope, ("other", "tenant"))
    assert where.held() == (0, 0)
    charge_request({"type": "http"}, ("fleet", "tenant"))  # of another server


def test_a_party_that_has_too_much_gets_no_more_by_that() -> None:
    where = port()
    for size in (400, 400, 70):
        where.open("a", size, State.UNANSWERED).charge_party(("f", "t"))
    request = where.open("b", 30, State.UNANSWERED)
    with pytest.raises(Refusal, match="bytes of requests"):
        request.charge_party(("f", "t"))
    assert request.party == (UNKNOWN, "b")
    assert where.requests.bytes.shares.held_by((UNKNOWN, "b")) == 30
    assert where.held() == (4, 900)
    assert where.gave_way == []


STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(1, 60)), max_size=40)


@settings(max_examples=60)
@given(STEPS)
def test_whatever_happens_no_more_than_the_total_is_held_and_all_of_it_is_given_back(
    steps: list[tuple[str, int, int]],
) -> None:
    where, requests = OpenRequests(20, 300), list[OpenRequest]()
    resources = where.places, where.bytes
    for name, action, size in steps:
        if action == 0 or not requests:
            requests.append(where.add_request(name, lambda *_: None))
        request = requests[-1] if action == 0 else requests[size % len(requests)]
        with suppress(Refusal):
            match action:
                case 0:
                    request.take_place()
                    request.hold_body(size)
                case 1:
                    request.hold_body(size)
                case 2:
                    request.set_state(State.UNANSWERED)
                case 3:
                    request.hold_unread(size if name == "a" else 0)
                case 4:
                    request.charge_party(("fleet", name))
                case 5:
                    request.release_all()
        for resource in resources:
            held = {each: each.held[resource] for each in requests}
            assert resource.shares.held_by() == sum(held.values()) <= resource.shares.total
            waiting = [each for holders in resource._holders.values() for each in holders]
            assert sorted(map(id, waiting)) == sorted(id(each) for each in requests if held[each] and each.state)
    for request in requests:
        request.release_all()
    assert [resource.shares.held_by() for resource in resources] == [0, 0]
