"""The messages of one stream of Envoy's: what is sent back, in which order, and what is refused."""

from itertools import pairwise

import pytest
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.picker.envoy_messages import (
    HEADERS,
    answer_body,
    answer_head,
    echoed_body,
    headers_set,
    request_body,
    request_head,
    request_trailers,
)

from paternoster_gateway.picker.exchange import AnswerBegun, AnswerPiece, Exchange, ProtocolFault, WholeRequest
from paternoster_gateway.picker.limits import PickerLimits
from paternoster_http.errors.refusal import Refusal

LIMITS = PickerLimits()
DESTINATIONS = ["10.0.0.1:8000", "[fd00::2]:8000"]


def begun(**head: object) -> Exchange:
    exchange = Exchange(LIMITS)
    assert exchange.receive(request_head(**head)) is None  # type: ignore[arg-type]
    return exchange


def chosen() -> Exchange:
    """An exchange whose request has gone to a replica."""
    exchange = begun()
    assert exchange.receive(request_body(b"{}", ends=True)) is not None
    list(exchange.forward(DESTINATIONS, {}, (), b"{}"))
    return exchange


@given(st.binary(max_size=200_000), st.lists(st.integers(0, 200_000), max_size=6), st.booleans())
def test_a_body_comes_back_whole_behind_the_choice(body: bytes, cuts: list[int], trailers: bool) -> None:
    exchange = begun()
    bounds = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = [body[start:end] for start, end in pairwise(bounds)]
    messages = [request_body(piece, ends=False) for piece in pieces]
    messages.append(request_trailers() if trailers else request_body(b"", ends=True))
    events = []
    for message in messages:
        events.append(exchange.receive(message))
        assert exchange.pop_replies() == [], "nothing is sent back before the end of the body"
    assert events[:-1] == [None] * (len(events) - 1)
    assert events[-1] == WholeRequest(HEADERS, body, None)
    replies = list(exchange.forward(DESTINATIONS, {"authorization": "Bearer k"}, ["cookie"], body))
    assert replies[0].WhichOneof("response") == "request_headers"
    choice = "10.0.0.1:8000,[fd00::2]:8000"
    assert headers_set(replies[0]) == {"authorization": "Bearer k", "x-gateway-destination-endpoint": choice}
    assert replies[0].dynamic_metadata["envoy.lb"]["x-gateway-destination-endpoint"] == choice
    assert replies[0].request_headers.response.clear_route_cache
    assert list(replies[0].request_headers.response.header_mutation.remove_headers) == ["cookie"]
    assert echoed_body(replies) == body
    last = replies[-1]
    if trailers:
        assert last.WhichOneof("response") == "request_trailers"
    else:
        assert last.request_body.response.body_mutation.streamed_response.end_of_stream


def test_a_request_without_a_body_is_whole_with_its_headers() -> None:
    exchange = Exchange(LIMITS)
    event = exchange.receive(request_head({":method": "GET", ":path": "/v1/models?x=1"}, ends=True))
    assert isinstance(event, WholeRequest)
    assert event.path == "/v1/models"
    replies = list(exchange.forward(DESTINATIONS[:1], {}, (), b""))
    assert [each.WhichOneof("response") for each in replies] == ["request_headers"]


@pytest.mark.parametrize("again", [b"", b"the last chunk"])
def test_a_last_chunk_that_comes_twice_is_ignored(again: bytes) -> None:
    exchange = begun()
    assert exchange.receive(request_body(b"{}", ends=True)) is not None
    assert exchange.receive(request_body(again, ends=True)) is None
    assert echoed_body(list(exchange.forward(DESTINATIONS, {}, (), b"{}"))) == b"{}"
    assert exchange.receive(request_body(again, ends=True)) is None
    assert exchange.pop_replies() == []


def test_another_body_has_its_own_length() -> None:
    headers = {**HEADERS, "content-length": "2"}
    exchange = begun(headers=headers)
    assert exchange.receive(request_body(b"{}", ends=True)) is not None
    replies = list(exchange.forward(DESTINATIONS, {}, (), b'{"a": 1}'))
    assert headers_set(replies[0])["content-length"] == "8"
    assert echoed_body(replies) == b'{"a": 1}'


@pytest.mark.parametrize(
    ("hint", "subset"),
    [
        (None, None),
        (["10.0.0.1:1", "10.0.0.2:1"], {"10.0.0.1:1", "10.0.0.2:1"}),
        ("10.0.0.1:1, 10.0.0.2:1", {"10.0.0.1:1", "10.0.0.2:1"}),
        ([], set()),
        ("", set()),
    ],
)
def test_a_subset_hint_is_a_list_or_one_text(hint: list[str] | str | None, subset: set[str] | None) -> None:
    event = Exchange(LIMITS).receive(request_head(subset=hint, ends=True))
    assert isinstance(event, WholeRequest)
    assert event.subset == subset


@pytest.mark.parametrize(
    ("arguments", "served", "local"),
    [
        ({"served": "10.0.0.2:1"}, "10.0.0.2:1", False),
        ({"attributes": {"upstream.address": "10.0.0.3:1", "response.code_details": "via_upstream"}}, "10.0.0.3:1",
         False),
        ({"served": "10.0.0.2:1", "attributes": {"upstream.address": "10.0.0.3:1"}}, "10.0.0.2:1", False),
        ({"attributes": {"response.code_details": "upstream_reset_before_response_started"}}, "", True),
        ({}, "", False),
    ],
)  # fmt: skip
def test_an_answer_names_its_replica(arguments: dict[str, object], served: str, local: bool) -> None:
    exchange = chosen()
    event = exchange.receive(answer_head(503, {"retry-after": "1"}, **arguments))  # type: ignore[arg-type]
    assert isinstance(event, AnswerBegun)
    assert (event.status, event.headers["Retry-After"], event.served, event.is_local) == (503, "1", served, local)
    assert [each.WhichOneof("response") for each in exchange.pop_replies()] == ["response_headers"]
    assert not exchange.is_over


@given(st.lists(st.binary(max_size=130_000), min_size=1, max_size=4))
def test_an_answer_whose_body_is_streamed_comes_back_whole(pieces: list[bytes]) -> None:
    exchange = chosen()
    exchange.receive(answer_head())
    exchange.pop_replies()
    for number, piece in enumerate(pieces, 1):
        assert exchange.receive(answer_body(piece, ends=number == len(pieces))) == AnswerPiece(piece)
        replies = exchange.pop_replies()
        assert echoed_body(replies, "response_body") == piece
        streamed = replies[-1].response_body.response.body_mutation.streamed_response
        assert streamed.end_of_stream == (number == len(pieces)) == exchange.is_over


def test_an_answer_of_envoys_own_ends_a_request_that_was_not_whole() -> None:
    exchange = begun()
    event = exchange.receive(answer_head(408, ends=True))
    assert isinstance(event, AnswerBegun)
    assert exchange.is_over
    assert not exchange.is_answerable


@pytest.mark.parametrize(
    ("limits", "headers", "bodies", "status"),
    [
        ({"max_body_bytes": 1024}, HEADERS, [b"a" * 1000, b"a" * 25], 413),
        ({"max_body_bytes": 1024}, {**HEADERS, "content-length": "1025"}, [], 413),
        ({"max_body_bytes": 1024}, {**HEADERS, "content-length": "9" * 5000}, [], 413),
        ({}, {**HEADERS, "a": "a" * 2**20}, [], 431),
        ({}, {**HEADERS, **{f"a{number}": "" for number in range(100)}}, [], 431),
    ],
)
def test_what_is_too_long_is_refused(
    limits: dict[str, int], headers: dict[str, str], bodies: list[bytes], status: int
) -> None:
    exchange = Exchange(PickerLimits.model_validate(limits))
    with pytest.raises(Refusal) as refused:
        for message in (request_head(headers), *(request_body(body, ends=False) for body in bodies)):
            exchange.receive(message)
    assert refused.value.status == status
    assert exchange.path == "/v1/chat/completions", "an error has the form of its API"
    reply = exchange.refuse(status, {"content-type": "application/json"}, b"{}")
    assert reply.immediate_response.status.code == status
    assert exchange.is_over


def test_bytes_are_held_as_they_come() -> None:
    held: list[int] = []
    exchange = Exchange(LIMITS, held.append)
    for message in (request_head(), request_body(b"abc", ends=False), request_body(b"de", ends=True)):
        exchange.receive(message)
    assert held == [3, 2]


@pytest.mark.parametrize(
    ("field", "mode", "message"),
    [
        ("request_body_mode", "BUFFERED", "request_body_mode is BUFFERED: must be FULL_DUPLEX_STREAMED"),
        ("request_body_mode", "NONE", "request_body_mode is NONE: must be FULL_DUPLEX_STREAMED"),
        ("response_body_mode", "STREAMED", "response_body_mode is STREAMED: must be NONE or FULL_DUPLEX_STREAMED"),
    ],
)
def test_another_mode_of_bodies_is_a_fault(field: str, mode: str, message: str) -> None:
    head = request_head()
    head.protocol_config.request_body_mode = ProcessingMode.FULL_DUPLEX_STREAMED
    setattr(head.protocol_config, field, ProcessingMode.BodySendMode.Value(mode))
    with pytest.raises(ProtocolFault, match=message):
        Exchange(LIMITS).receive(head)


MESSAGES = (
    request_head(), request_head(ends=True), request_body(b"a", ends=False), request_body(b"b", ends=True),
    request_trailers(), answer_head(), answer_head(ends=True), answer_body(b"c", ends=False),
    answer_body(b"d", ends=True), ProcessingRequest(),
)  # fmt: skip


@given(st.lists(st.sampled_from(MESSAGES), max_size=12))
def test_any_order_of_messages_is_read_or_a_fault(messages: list[ProcessingRequest]) -> None:
    """At most one request, one head of an answer, and no reply to a request but the driver's."""
    exchange, kinds = Exchange(LIMITS), []
    for message in messages:
        try:
            event = exchange.receive(message)
        except ProtocolFault:
            break
        kinds.append(type(event))
        replied = {each.WhichOneof("response") for each in exchange.pop_replies()}
        assert replied <= {"response_headers", "response_body", "response_trailers"}
        if isinstance(event, WholeRequest):
            assert len(list(exchange.forward(DESTINATIONS, {}, (), event.body))) <= 3
    assert kinds.count(WholeRequest) <= 1
    assert kinds.count(AnswerBegun) <= 1
