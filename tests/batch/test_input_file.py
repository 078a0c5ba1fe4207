"""Input files that may run, and the errors that lines of others get."""

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_batch import input_file
from paternoster_batch.input_file import BOM, MAX_LINE_BYTES, MOST_ERRORS, InputFile, split_lines

ENDPOINT = "/v1/chat/completions"


def line(custom_id: str = "a", **changes: Any) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    document = {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body} | changes
    return json.dumps(document, ensure_ascii=False).encode()


def read(*lines: bytes, end: bytes = b"\n") -> InputFile:
    return InputFile.read([end.join(lines) + end], ENDPOINT)


def codes(file: InputFile) -> list[tuple[str, int | None]]:
    return [(error["code"], error["line"]) for error in file.errors]


@given(st.binary(max_size=400), st.integers(1, 50))
def test_lines_are_those_of_the_whole_file_however_it_is_cut(data: bytes, size: int) -> None:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    found = list(split_lines(pieces))
    expected = [(number, part) for number, part in enumerate(data.split(b"\n"), 1) if part.strip()]
    assert [(number, content) for number, _, content in found] == expected
    for _, start, content in found:
        assert content is not None
        assert data[start : start + len(content)] == content


@given(st.lists(st.sampled_from([b"", b"x", b"xxxx", b"xxxxxxx", b" "]), max_size=8), st.integers(1, 9))
def test_lines_behind_one_that_is_too_long_have_their_places(parts: list[bytes], size: int) -> None:
    data = b"\n".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_file, "MAX_LINE_BYTES", 4)
        found = list(split_lines(data[start : start + size] for start in range(0, len(data), size)))
    assert [(number, content) for number, _, content in found] == [
        (number, part if len(part) <= 4 else None) for number, part in enumerate(parts, 1) if part.strip()
    ]
    assert all(data[start : start + len(content)] == content for _, start, content in found if content)


def test_lines_have_their_place_in_the_file() -> None:
    first, second = line("a", body={"model": "m", "prompt": "\u2028 one line"}), line("b")
    data = BOM + first + b"\r\n\r\n  \n" + second
    file = InputFile.read([data], ENDPOINT)
    assert file.errors == []
    assert (file.model, [(each.number, each.custom_id) for each in file.lines]) == ("m", [(1, "a"), (4, "b")])
    assert [data[each.start : each.start + each.size].rstrip() for each in file.lines] == [first, second]


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        (b"{", "invalid_json_line", "not JSON"),
        (b"[]", "invalid_json_line", "must be an object"),
        (b"\xff", "invalid_json_line", "not JSON"),
        (BOM + line("b"), "invalid_json_line", "not JSON"),
        (b'{"custom_id": NaN}', "invalid_json_line", "NaN is no number"),
        (b'{"custom_id": -Infinity}', "invalid_json_line", "-Infinity is no number"),
        (b'{"custom_id": 1e999}', "invalid_json_line", '"1e999" is beyond'),
        (b'{"custom_id": ' + b"1" * 2000 + b"}", "invalid_json_line", "digits"),
        (b"[" * 100_000, "invalid_json_line", "nested deeper"),
        (b'{"custom_id": "b", "custom_id": "c"}', "invalid_json_line", '"custom_id" stands twice'),
        (line("b").replace(b'"role"', b'"role": "user", "role"'), "invalid_json_line", '"role" stands twice'),
        (line("a"), "duplicate_custom_id", 'custom_id is "a": an earlier line'),
        (line(""), "invalid_custom_id", 'custom_id is "": must be a text of 1 to 512'),
        (line("x" * 513), "invalid_custom_id", "must be a text of 1 to 512"),
        (line("b").replace(b'"b"', b'"\\ud800"'), "invalid_custom_id", r'custom_id is "\ud800": must'),
        (line("b").replace(b'"b"', b"7"), "invalid_custom_id", "custom_id is 7: must"),
        (line("b", method="GET"), "invalid_method", 'method is "GET": must be POST'),
        (line("b", url="/v1/embeddings"), "url_mismatch", 'url is "/v1/embeddings": must be /v1/chat/completions'),
        (line("b", body=[]), "invalid_body", "body must be an object"),
        (line("b", body={"model": None}), "invalid_body", "body.model is null: must be a model's name"),
        (line("b", body={"model": "other"}), "mismatched_model", 'is "other": must be "m", as in line 1'),
        (line("b", body={"model": "m", "stream": True}), "stream_not_supported", "body.stream is true: must be false"),
        (b" " * MAX_LINE_BYTES + b"x", "line_too_long", str(MAX_LINE_BYTES)),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_a_bad_line_is_named(bad: bytes, code: str, words: str) -> None:
    file = read(line("a"), bad, line("c"))
    assert codes(file) == [(code, 2)]
    assert words in file.errors[0]["message"]
    assert len(file.errors[0]["message"]) < 1200


def test_each_bad_line_is_named_up_to_a_bound() -> None:
    assert codes(read(b"1", line("a"), b"2", line("a"))) == [
        ("invalid_json_line", 1), ("invalid_json_line", 3), ("duplicate_custom_id", 4),
    ]  # fmt: skip
    assert len(read(*[b"1"] * 1000).errors) == MOST_ERRORS


@pytest.mark.parametrize("data", [b"", b"\n\r\n \n", BOM, BOM + b"\n"])
def test_a_file_without_lines_is_refused(data: bytes) -> None:
    assert codes(InputFile.read([data], ENDPOINT)) == [("empty_batch", None)]


def test_more_lines_than_a_batch_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_file, "MAX_LINES", 2)
    assert read(line("a"), line("b")).errors == []
    assert codes(read(line("a"), line("b"), line("c"), line("d"))) == [("too_many_tasks", 3)]


def test_an_object_with_many_fields_is_read_in_one_pass() -> None:
    fields = ",".join(f'"{number}":0' for number in range(100_000))
    (error,) = read(f'{{{fields},"7":0}}'.encode()).errors
    assert '"7" stands twice' in error["message"]


def test_no_content_of_a_file_stays_in_memory() -> None:
    """A hundredth of the largest file, of lines as long: what stays is bounded by the number of lines."""

    def pieces() -> Iterator[bytes]:
        for number in range(500):
            yield line(str(number), body={"model": "m", "prompt": "x" * 4096}) + b"\n"

    tracemalloc.start()
    file = InputFile.read(pieces(), ENDPOINT)
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(file.lines) == 500
    assert left < 500 * 1000
    assert peak < 500 * 1000 + 2**20
