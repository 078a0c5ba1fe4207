"""Answers of hostile engines, routing tables and requests, drawn from a random number generator. Pure."""

import json
import random
from collections.abc import Iterator, Sequence

from hostile.attackers.fuzz_pods import mutate
from paternoster_contract import stream_journal
from paternoster_contract.http import headers, paths
from paternoster_contract.limits import MAX_ALIASES
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_contract.routing_rows import CONTENT_TYPE, End, Row
from paternoster_contract.text_chains import stream as chains

HOSTILE = "hostile"
"""The model of hostile engines."""
NUMBERS = ("9" * 400, "1e400", "-1", "NaN", "null", '"x"', "[]", "{}", "0", "1", str(2**63), "0.5")
JUNK = (
    b"\x00", b"\xff\xfe", b"\r\n\r\n", b"\n\n", b"\n", b":", b"data:", b"data: [DONE]\n\n", b"{", b"[" * 5000,
    stream_journal.HAND_OVER + b"\n\n", stream_journal.FAILED + b"\n\n", stream_journal.DRAINING + b"\n\n",
    stream_journal.COMMENT, b'"' * 99, "\u2028".encode(), b"\x1b]52;c;eA==\x07", b"event: error\n",
)  # fmt: skip
SIZES = (0, 1, 2**8, 2**12, 2**16, 2**20, 2**23)
"""Bytes of a long part."""
CHUNK = '{"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": '
WHOLE = {
    "id": "a", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}  # fmt: skip
NAMES = (
    stream_journal.JOURNAL, stream_journal.RESUME, stream_journal.PROGRESS, headers.NOT_SERVING, headers.PROMPT_TOKENS,
    headers.CACHED_TOKENS, headers.ROUTING, headers.REQUEST_ID, "Retry-After", "Content-Encoding", "Set-Cookie",
    "Connection", "Trailer", "Content-Type", "Server", "Date", "X-RateLimit-Remaining", "Upgrade", "Location",
)  # fmt: skip
MEDIA_TYPES = (
    "text/event-stream",
    "application/json",
    stream_journal.PROGRESS_MEDIA_TYPE,
    chains.MEDIA_TYPE,
    "",
    "a/b",
)


def spoil(draw: random.Random, data: bytes) -> bytes:
    """``data`` with some of its bytes left out, repeated or replaced."""
    for _ in range(draw.choice([0, 1, 1, 3])):
        start = draw.randrange(len(data) + 1)
        end = min(len(data), start + draw.choice([0, 1, 8, 200]))
        put = draw.choice([draw.choice(JUNK), data[start:end] * 2, draw.randbytes(draw.choice([1, 9])), b""])
        data = data[:start] + put + data[end:]
    return data


def draw_frames(draw: random.Random) -> bytes:
    """Frames of a stream, most of them behind a line of a journal."""
    frames = []
    for number in range(draw.choice([1, 3, 20, 400])):
        line = stream_journal.COMMENT + f"[[0,null,[{number}]]]\n".encode() if draw.random() < 0.8 else b""
        text = json.dumps("a" * draw.choice(SIZES)) if draw.random() < 0.02 else '"a"'
        frame = line + b"data: " + f'{CHUNK}{{"content": {text}}}}}], "usage": null}}'.encode() + b"\n\n"
        frames.append(spoil(draw, frame) if draw.random() < 0.2 else frame)
    ends: Sequence[bytes] = (b"data: [DONE]\n\n", b"", *JUNK, b"data: " + b"a" * draw.choice(SIZES))
    return b"".join(frames) + draw.choice(ends)


def draw_progress(draw: random.Random) -> bytes:
    """A whole answer behind its journal."""
    lines = b"".join(b"[[0,null,[%d]]]\n" % draw.randrange(9) for _ in range(draw.choice([0, 1, 50, 20_000])))
    shown = tuple((draw.choice(NAMES).encode(), draw_value(draw).encode("latin-1")) for _ in range(draw.randrange(4)))
    head = stream_journal.AnswerHead(draw.choice([200, 200, 400, 503]), shown).encode() + b"\n"
    return spoil(draw, spoil(draw, lines) + spoil(draw, head) + draw_json(draw))


def draw_json(draw: random.Random) -> bytes:
    """A whole answer, with other numbers in places, or a deep or long document."""
    if draw.random() < 0.7:
        text = json.dumps(WHOLE)
        for _ in range(draw.randrange(3)):
            text = text.replace(draw.choice([": 1", ": 2", ": 0"]), f": {draw.choice(NUMBERS)}", 1)
        return spoil(draw, text.encode())
    unit = draw.choice([b"[", b'{"usage":', b'{"a":1},', b'"', b" ", b"\xff", b"9"])
    return unit * (draw.choice(SIZES) // len(unit))


def draw_chains(draw: random.Random) -> bytes:
    """A stream of text chains."""
    hello = chains.Hello(
        version=chains.VERSION, instance="a" * 32, resumes=draw.random() < 0.5, model=HOSTILE, isolates_tenants=False,
        block_size=16,
    )  # fmt: skip
    stored = {draw.getrandbits(64): draw.choice([0, 16, 2**32 - 1]) for _ in range(draw.choice([1, 9, 4000]))}
    frames: list[chains.Frame] = [hello, chains.Snapshot(0, stored, draw.random() < 0.8)]
    for number in range(draw.choice([0, 3, 300])):
        drawn = {draw.getrandbits(64): 16 for _ in range(draw.choice([0, 1, 500]))}
        gone = draw.sample([*stored], min(len(stored), draw.randrange(9)))
        frames.append(chains.Changes(number + 1, drawn, gone, draw.random() < 0.05))
        frames.append(chains.Heartbeat(draw.choice([number + 1, number, 2**64 - 1])))
    return spoil(draw, b"".join(map(chains.encode_frame, frames)))


def draw_value(draw: random.Random) -> str:
    """A value of a header."""
    return draw.choice(["1", "-1", "nan", "9" * 400, "fp", "a" * 7000, "died", "draining", "gzip", "close", "\xff", ""])


def draw_head(draw: random.Random, media_type: str) -> bytes:
    """The status and the headers of an answer, without its framing."""
    if draw.random() < 0.02:
        return draw.choice(
            [b"HTTP/1.1 999 X\r\n", b"HTTP/2 200\r\n", b"\x00\r\n", b"HTTP/1.1 103 X\r\n\r\n" * 50, b"\r\n"]
        )
    status = draw.choice([200] * 12 + [100, 204, 301, 400, 404, 412, 429, 500, 502, 503, 503, 504])
    lines = [b"HTTP/1.1 %d X" % status, f"Content-Type: {media_type}".encode()]
    if draw.random() < 0.7:
        lines.append(f"{stream_journal.JOURNAL}: fp".encode())
    for _ in range(draw.choice([0, 0, 1, 2, 90])):
        lines.append(f"{draw.choice(NAMES)}: {draw_value(draw)}".encode("latin-1"))
    return b"\r\n".join(lines) + b"\r\n"


def draw_tables(draw: random.Random) -> Iterator[tuple[str, bytes]]:
    """Media types and texts of routing tables without an end."""
    while True:
        models = {
            draw.choice(["a", "b", HOSTILE, "a" * 300, "\u2028", ""]) + str(number): ModelRoute(
                fleet=f"uid-{number}",
                namespace=draw.choice(["", "a", "b"]),
                aliases=[draw.choice(["a", "b", "c"]) for _ in range(draw.choice([0, 1, MAX_ALIASES]))],
                replicas=[
                    Replica(name=f"r{i}", url=f"http://127.0.0.1:{draw.choice([1, 2, 3])}", ready=draw.random() < 0.5)
                    for i in range(draw.choice([0, 1, 3]))
                ],
                max_in_flight=draw.choice([None, 1, 2**31]),
            )
            for number in range(draw.choice([0, 1, 20, 500]))
        }  # fmt: skip
        text, media_type = RoutingTable(models=models).model_dump_json().encode(), "application/json"
        if draw.random() < 0.6:
            rows = [Row(name=name, route=route).encode() for name, route in models.items()]
            text, media_type = b"".join(rows) + End(rows=len(rows)).encode(), CONTENT_TYPE
        if draw.random() < 0.3:
            text = mutate(draw, text.decode(), ":[0-9.]+", ":").encode()
        if draw.random() < 0.1:
            text = draw.choice([b"[", b'{"models":{', b'{"name":"a"}\n', b"\n", b"9", b'"']) * draw.choice(SIZES[:-1])
        yield media_type, spoil(draw, text) if draw.random() < 0.5 else text


def draw_request(draw: random.Random) -> bytes:
    """Bytes for an operator's port: a request to one of its paths, in most cases spoiled."""
    path = draw.choice([
        paths.ROUTES, paths.METRICS, paths.OPERATOR_HEALTH, paths.OPERATOR_READY, "/", "/stats", "/a" * 4000, "/%00",
    ])  # fmt: skip
    lines = [f"{draw.choice(['GET', 'GET', 'POST', 'HEAD', 'PUT', 'X' * 99])} {path} HTTP/1.1", "Host: x"]
    for _ in range(draw.choice([0, 1, 5, 200])):
        name = draw.choice(["Authorization", "If-None-Match", "Accept", "Range", "Expect", "Cookie", "X-A", "Host"])
        lines.append(f"{name}: {draw_value(draw)}")
    body = b"[" * draw.choice(SIZES[:-1])
    if draw.random() < 0.5:
        lines.append(f"Content-Length: {draw.choice([len(body), 0, len(body) + 9, 10**18])}")
    sent = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body
    return spoil(draw, sent) if draw.random() < 0.7 else sent
