"""Bodies of message batches: which may run, and the errors that requests of others get."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_batch import message_requests
from paternoster_batch.input_file import MAX_LINE_BYTES
from paternoster_batch.message_requests import (
    MAX_MODELS,
    MOST_SHOWN,
    InvalidRequests,
    MessageRequests,
    parse_request,
    split_requests,
)


def request(custom_id: Any = "a", **params: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": 'a "text" with } ] and \\ in it'}]
    return {"custom_id": custom_id, "params": {"model": "m", "max_tokens": 1, "messages": messages} | params}


def body(*requests: Any, **fields: Any) -> bytes:
    return json.dumps({"requests": requests} | fields).encode()


def refusal(data: bytes) -> str:
    with pytest.raises(InvalidRequests) as refused:
        MessageRequests.read([data])
    return str(refused.value)


TEXTS = st.text(st.sampled_from('ab"\\{}[],:\u2028\n\x00é😀'), max_size=8)
REQUESTS = st.dictionaries(TEXTS, TEXTS | st.integers(-1, 9) | st.lists(TEXTS, max_size=3), max_size=4)


@given(st.lists(REQUESTS, max_size=8), st.integers(1, 60), st.sampled_from([None, 1]), st.booleans())
def test_requests_are_those_of_the_whole_body_however_it_is_cut(
    requests: list[dict[str, Any]], size: int, indent: int | None, escaped: bool
) -> None:
    data = json.dumps({"requests": requests}, indent=indent, ensure_ascii=escaped).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_requests, "MAX_LINE_BYTES", 2500)
        patch.setattr(message_requests, "WINDOW_BYTES", 5000)
        found = list(split_requests(data[start : start + size] for start in range(0, len(data), size)))
    assert [json.loads(content) for _, content in found] == requests
    assert all(data[start : start + len(content)] == content for start, content in found)


def test_requests_have_their_place_in_the_body() -> None:
    first, second = request("a"), request("b", model="other/name")
    data = b"\xef\xbb\xbf \r\n" + json.dumps({"requests": [first, second, request("c")]}, indent=2).encode() + b"\n"
    requests = MessageRequests.read(data[start : start + 7] for start in range(0, len(data), 7))
    assert requests.models == {"m": 0, "other/name": 1}
    assert [(line.number, line.custom_id) for line in requests.lines] == [(1, "a"), (2, "b"), (3, "c")]
    contents = [data[line.start : line.start + line.size] for line in requests.lines]
    assert [parse_request(content) for content in contents[:2]] == [("a", first["params"]), ("b", second["params"])]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (request("a"), '.custom_id: "a" is that of an earlier request'),
        (request("x" * 65), '.custom_id: "xxx'),
        (request(""), ".custom_id: \"\": must be a text of 1 to 64 letters, digits, '-' and '_'"),
        (request("a b"), '.custom_id: "a b": must be'),
        (request("a\n"), '.custom_id: "a\\n": must be'),
        (request(7), ".custom_id: 7: must be"),
        ({"params": {}}, ".custom_id: null: must be"),
        ({"custom_id": "b"}, ".params: null: must be an object"),
        ({"custom_id": "b", "params": []}, ".params: []: must be an object"),
        (request("b") | {"method": "POST"}, ': "method": a request has custom_id and params alone'),
        (request("b", model=""), '.params.model: "": must be a model\'s name of 1 to 512'),
        (request("b", model=None), ".params.model: null: must be"),
        (request("b", stream=True), ".params.stream: true: must be false"),
        (request("b", temperature=float("nan")), ": the request is not JSON: NaN is no number"),
        (request("b", temperature=float("inf")), ": the request is not JSON: Infinity is no number"),
        (request("b", metadata=[[]] * 200_000), ": the request is not JSON: the request has more than"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_request_is_named(bad: dict[str, Any], words: str) -> None:
    message = refusal(body(request("a"), bad, request("c")))
    assert message.startswith(f"requests.1{words}"), message
    assert ";" not in message
    assert len(message) < 1200


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the body must be a JSON object whose only field is requests"),
        (b"[]", "the body must be a JSON object"),
        (b"{}", "the body must be a JSON object"),
        (b'{"requests": {}}', "the body must be a JSON object"),
        (body(request(), model="m").replace(b'"requests"', b'"x": 1, "requests"'), "the body must be a JSON object"),
        (body(request(), model="m"), "the body must end behind the list"),
        (body(request()) + b"x", "the body must end behind the list"),
        (body(request())[:-1], "the body must end behind the list"),
        (body(), "requests: must have at least one"),
        (body(7), "requests.0: must be an object"),
        (body(request(), "x"), "requests.1: must be an object"),
        (body(request())[:-2] + b",]}", "requests.1: must be an object"),
        (body(request())[:-2] + b'{"custom_id"', "requests.1: must follow a comma"),
        (body(request())[:-2], "requests.1: must follow a comma, or the list must end"),
        (body(request())[:-5], "requests.0: must be an object of at most"),
        (b'{"requests": [{]', "requests.0: the request is not JSON"),
        (b'{"requests": [{"a": 1, "a": 2}]}', 'requests.0: the request is not JSON: the field "a" stands twice'),
        (b'{"requests": [{"\xff": 1}]}', "requests.0: the request is not JSON"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_body_that_is_no_batch_is_refused(data: bytes, words: str) -> None:
    assert refusal(data).startswith(words)


def test_each_bad_request_is_named_up_to_a_bound() -> None:
    assert [each.partition(":")[0] for each in refusal(body({}, request(), {}, request())).split("; ")] == [
        "requests.0.custom_id", "requests.2.custom_id", "requests.3.custom_id",
    ]  # fmt: skip
    assert len(refusal(body(*[{}] * 1000)).split("; ")) == MOST_SHOWN


def test_more_requests_and_models_than_a_batch_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [request(str(number), model=str(number)) for number in range(MAX_MODELS + 1)]
    assert len(MessageRequests.read([body(*models[:-1])]).models) == MAX_MODELS
    assert refusal(body(*models)) == f"requests.{MAX_MODELS}.params.model: the batch has more than {MAX_MODELS} models"
    monkeypatch.setattr(message_requests, "MAX_REQUESTS", 2)
    assert len(list(MessageRequests.read([body(request("a"), request("b"))]).lines)) == 2
    assert refusal(body(*map(request, "abcd"))) == "requests.2: the batch has more than 2 requests"


@pytest.mark.parametrize("text", ['\\"' * 4_000_000, "x" * 5_000_000, "{" * 5_000_000, "\\" * 5_000_001])
def test_a_request_that_is_too_long_is_refused_in_one_pass(text: str) -> None:
    """Without an end each quotation mark in it could be the beginning of another text."""
    data = b'{"requests": [{"custom_id": "' + text.encode() + b'"}]}'
    assert refusal(data).startswith(f"requests.0: must be an object of at most {MAX_LINE_BYTES} bytes")


def test_a_request_as_long_as_the_limit_may_run() -> None:
    content = json.dumps(request("a")).encode()
    long = content[:-2] + b" " * (MAX_LINE_BYTES - len(content)) + content[-2:]
    requests = MessageRequests.read([b'{"requests": [', long, b",", json.dumps(request("b")).encode(), b"]}"])
    assert [line.size for line in requests.lines] == [MAX_LINE_BYTES, len(content)]
    assert "at most" in refusal(b'{"requests": [ ' + long.replace(b"  ", b"   ", 1) + b"]}")


def test_no_body_is_in_memory_as_a_whole() -> None:
    import tracemalloc

    def pieces() -> Iterator[bytes]:
        yield b'{"requests": ['
        for number in range(8000):
            yield json.dumps(request(str(number), system="x" * 4096)).encode() + b","
        yield json.dumps(request("last")).encode() + b"]}"

    tracemalloc.start()
    requests = MessageRequests.read(pieces())
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(list(requests.lines)) == 8001
    assert left < 8001 * 1000
    assert peak < 8001 * 1000 + 6 * MAX_LINE_BYTES
