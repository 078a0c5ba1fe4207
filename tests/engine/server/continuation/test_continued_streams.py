"""A stream that another engine continues is the undisturbed one, wherever it was cut."""

import itertools
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import httpx
import pytest
from tests.engine.server.scripted_server import Server, scripted_server
from tests.engine.server.tool_templates import QWEN3

from paternoster_contract.request_phases import PHASES, PHASES_COMMENT, RequestPhases, WaitReason
from paternoster_contract.stream_journal import (
    COMMENT,
    DRAINING,
    FAILED,
    HAND_OVER,
    JOURNAL,
    RESUME,
    STREAM_ID,
    JournalEntry,
    Resume,
    StreamId,
    decode_journal,
)
from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.access.identity import TenantRules
from paternoster_engine.server.state import ServerState

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
GATEWAY = TenantRules(believes_header=True)
CALL = StreamId("0123456789abcdef" * 2, 1_700_000_000)
MESSAGES: dict[str, Any] = {"messages": [{"role": "user", "content": "Weather in Zürich?"}]}
END_USAGE = {"stream": True, "stream_options": {"include_usage": True}}
USAGE = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"name": "weather", "description": "of a city"}
WITH_CALL = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich é"}}\n</tool_call>'
THOUGHT = "<think>It is ❄ there.</think>Snow ❄ until noon, then sun. END of it."
CASES: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", THOUGHT, MESSAGES | USAGE),
    "chat that a stop string ends": ("/v1/chat/completions", THOUGHT, MESSAGES | USAGE | {"stop": ["END of"]}),
    "chat cut by its length": ("/v1/chat/completions", THOUGHT, MESSAGES | USAGE | {"max_tokens": 9}),
    "three choices with log probabilities": (
        "/v1/chat/completions", THOUGHT, MESSAGES | END_USAGE | {"n": 3, "logprobs": True, "top_logprobs": 2},
    ),
    "chat with ids": ("/v1/chat/completions", THOUGHT, MESSAGES | USAGE | {"return_token_ids": True}),
    "tools": (
        "/v1/chat/completions", WITH_CALL,
        MESSAGES | USAGE | {"tools": [{"type": "function", "function": TOOL | {"parameters": PARAMETERS}}]},
    ),
    "completions": ("/v1/completions", THOUGHT, {"prompt": ["It is", "Once"], "n": 2, "max_tokens": 30} | END_USAGE),
    "echo with log probabilities": (
        "/v1/completions", THOUGHT, {"prompt": "It is", "echo": True, "logprobs": 1, "max_tokens": 30} | USAGE,
    ),
    "responses": (
        "/v1/responses", WITH_CALL,
        {"input": "Weather?", "stream": True, "tools": [{"type": "function", "parameters": PARAMETERS} | TOOL]},
    ),
    "responses with log probabilities": (
        "/v1/responses", THOUGHT,
        {"input": "Weather?", "stream": True, "include": ["message.output_text.logprobs"], "top_logprobs": 2},
    ),
    "messages": (
        "/v1/messages", WITH_CALL,
        MESSAGES | {"max_tokens": 100, "stream": True, "tools": [TOOL | {"input_schema": PARAMETERS}]},
    ),
    "messages with thinking": (
        "/v1/messages", THOUGHT,
        MESSAGES | {"max_tokens": 1100, "stream": True, "thinking": {"type": "enabled", "budget_tokens": 1024}},
    ),
}  # fmt: skip


class Stream(NamedTuple):
    """An engine's stream as the gateway reads it."""

    frames: list[bytes]
    """Frames that the client gets."""
    lines: list[bytes]
    """The journal's line of each frame; empty where it has none."""


def read_stream(response: httpx.Response) -> Stream:
    assert response.status_code == 200, response.text
    assert response.headers[JOURNAL] == "fp_scripted"
    frames, lines = [], []
    for frame in response.content.split(b"\n\n")[:-1]:
        if frame.startswith(PHASES_COMMENT):
            continue
        line, _, rest = frame.partition(b"\n") if frame.startswith(COMMENT) else (b"", b"", frame)
        frames.append(rest)
        lines.append(line.removeprefix(COMMENT))
    return Stream(frames, lines)


async def begin(server: Server, path: str, body: Mapping[str, Any]) -> Stream:
    return read_stream(await server.client.post(path, json=body, headers={STREAM_ID: CALL.encode()}))


async def resume(
    server: Server, path: str, body: Mapping[str, Any], num_frames: int, lines: Sequence[bytes], **headers: str
) -> httpx.Response:
    content = httpx.Request("POST", "http://engine", json=body).content
    journal = b"\n".join(line for line in lines if line)
    part = Resume(num_frames, len(journal), "fp_scripted").encode()
    sent = {"Content-Type": "application/json", STREAM_ID: CALL.encode(), RESUME: part} | headers
    return await server.client.post(path, content=content + journal, headers=sent)


def without_times(frames: Sequence[bytes]) -> list[bytes]:
    """Without when a response ended and what the cache had, which are not the same twice."""
    return [re.sub(rb'"(completed_at|cached_tokens|cache_read_input_tokens|input_tokens)":\d+', b"", f) for f in frames]


def by_choice(frames: Sequence[bytes]) -> dict[bytes, list[bytes]]:
    """Frames of each choice in their order: how steps mix choices is not the same twice."""
    found = defaultdict[bytes, list[bytes]](list)
    for frame in without_times(frames):
        index = re.search(rb'"choices":\[\{"index":\d+', frame)
        found[b"" if index is None else index[0]].append(frame)
    return found


def entries(lines: Sequence[bytes]) -> list[list[JournalEntry]]:
    found = decode_journal(b"\n".join(line for line in lines if line))
    return [[entry for entry in found if entry.choice == choice] for choice in range(4)]


@pytest.fixture
async def server(tokenizer: Tokenizer) -> AsyncIterator[Server]:
    serve = scripted_server(tokenizer.with_template(QWEN3))
    async with serve(paced=True, tenants=GATEWAY, **ROOM) as server:
        yield server


def _script_answer(server: Server, tokenizer: Tokenizer, text: str) -> None:
    server.runner.tokens = [*tokenizer.encode(text), tokenizer.eos_token_ids[0]]


@pytest.mark.parametrize("case", CASES)
async def test_stream_goes_on_after_any_frame(server: Server, tokenizer: Tokenizer, case: str) -> None:
    path, text, body = CASES[case]
    _script_answer(server, tokenizer, text)
    await begin(server, path, body)  # its prompt is cached then
    whole = await begin(server, path, body)
    assert sum(map(bool, whole.lines)) >= 3
    for cut in range(1, len(whole.frames) + 1):
        found = read_stream(await resume(server, path, body, cut, whole.lines[:cut]))
        assert by_choice(found.frames) == by_choice(whole.frames[cut:])
        assert entries(found.lines) == entries(whole.lines[cut:])


async def test_a_stream_states_where_its_time_went(server: Server, tokenizer: Tokenizer) -> None:
    """A frame that is for the gateway alone has them, once the last token has come."""
    path, text, body = CASES["chat"]
    _script_answer(server, tokenizer, text)
    response = await server.client.post(path, json=body, headers={STREAM_ID: CALL.encode()})
    *frames, done, end = response.content.split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    (stated,) = [frame for frame in frames if frame.startswith(PHASES_COMMENT)]
    assert b'finish_reason":"' in frames[frames.index(stated) + 1]
    whole = RequestPhases.decode(stated.removeprefix(PHASES_COMMENT).decode())
    begun = RequestPhases.decode(response.headers[PHASES])
    assert whole is not None
    assert begun is not None
    assert whole[:3] == begun[:3]
    assert (whole.waited_for, whole.preemptions) == (WaitReason.STEP, 0)
    direct = await server.client.post(path, json=body)
    assert PHASES_COMMENT not in direct.content


async def test_same_call_is_answered_alike_and_others_are_not(server: Server, tokenizer: Tokenizer) -> None:
    path, text, body = CASES["tools"]
    _script_answer(server, tokenizer, text)
    twice = [(await begin(server, path, body)).frames for _ in range(2)]
    assert without_times(twice[0]) == without_times(twice[1])
    assert b'"created":1700000000' in twice[0][0]
    others = {(await server.client.post(path, json=body)).text.split('"id":"')[1][:40] for _ in range(2)}
    assert len(others) == 2


async def test_clients_without_a_gateway_get_no_journal_and_resume_nothing(tokenizer: Tokenizer) -> None:
    path, text, body = CASES["chat"]
    async with scripted_server(tokenizer)(text, paced=True, **ROOM) as server:
        response = await server.client.post(path, json=body, headers={STREAM_ID: CALL.encode()})
        assert JOURNAL not in response.headers
        assert COMMENT not in response.content
        refused = await resume(server, path, body, 1, [b"[[0,null,[5]]]"])
        assert refused.status_code == 400
        assert "not valid JSON" in refused.json()["error"]["message"]


async def test_engine_that_cannot_go_on_says_so_instead_of_an_error(
    server: Server, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, text, body = CASES["chat"]
    _script_answer(server, tokenizer, text)
    whole = await begin(server, path, body)
    execute, steps = server.runner.execute, itertools.count()

    def break_after_four(batch: Batch) -> StepResult:
        if next(steps) >= 4:
            raise RuntimeError("the device is gone")
        return execute(batch)

    monkeypatch.setattr(server.runner, "execute", break_after_four)
    broken = await begin(server, path, body)
    assert broken.frames[-2:] == [FAILED, HAND_OVER]
    cut = len(broken.frames) - 2
    assert 0 < cut < len(whole.frames) - 2
    monkeypatch.undo()
    found = read_stream(await resume(server, path, body, cut, broken.lines))
    assert without_times(broken.frames[:cut] + found.frames) == without_times(whole.frames)


@pytest.mark.parametrize("stop", [ServerState.begin_end, ServerState.drain])
async def test_engine_that_admits_nothing_more_announces_it_and_goes_on(
    server: Server, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, stop: Callable[[ServerState], None]
) -> None:
    path, text, body = CASES["chat"]
    _script_answer(server, tokenizer, text)
    await begin(server, path, body)
    whole = await begin(server, path, body)
    execute, steps = server.runner.execute, itertools.count()

    def end_after_four(batch: Batch) -> StepResult:
        if next(steps) == 4:
            stop(server.state)
        return execute(batch)

    monkeypatch.setattr(server.runner, "execute", end_after_four)
    announced = await begin(server, path, body)
    position = announced.frames.index(DRAINING)
    assert 0 < position < len(whole.frames) - 2
    rest = announced.frames[:position] + announced.frames[position + 1 :]
    assert without_times(rest) == without_times(whole.frames)
    assert entries(announced.lines) == entries(whole.lines)
    if stop is ServerState.drain:
        server.state.admit()
        assert DRAINING not in (await begin(server, path, body)).frames


FORGED = {
    "a choice that there is not": b"[[3,null,[5]]]",
    "a token that there is not": b"[[0,null,[49152]]]",
    "more tokens than were asked for": b"[[0,null," + str([5] * 200).encode() + b"]]",
    "an end that there is not": b'[[0,"abort",[5]]]',
    "no JSON": b"[[0,null,[5]]",
    "no numbers": b'[[0,null,["a"]]]',
    "a negative number": b"[[0,null,[-1]]]",
    "no entries": b"[5]",
    "no list": b'{"a":1}',
}


@pytest.mark.parametrize("journal", FORGED.values(), ids=FORGED)
async def test_journal_that_is_not_of_the_call_is_refused(server: Server, journal: bytes) -> None:
    path, _, body = CASES["chat"]
    response = await resume(server, path, body | {"max_tokens": 100}, 1, [journal])
    assert response.status_code == 400
    assert response.json()["error"]["param"] == RESUME


async def test_stream_of_other_numerics_is_refused(server: Server) -> None:
    path, _, body = CASES["chat"]
    response = await resume(server, path, body, 1, [b"[[0,null,[5]]]"], **{RESUME: Resume(1, 14, "fp_other").encode()})
    assert response.status_code == 412
    assert "fp_other" in response.json()["error"]["message"]


async def test_continued_request_is_neither_queued_behind_a_bound_nor_charged(tokenizer: Tokenizer) -> None:
    path, text, body = CASES["chat"]
    serve = scripted_server(tokenizer.with_template(QWEN3))
    async with serve(text, paced=True, tenants=GATEWAY, tenant_tokens_per_second=1, **ROOM) as server:
        whole = await begin(server, path, body)
        refused = await server.client.post(path, json=body)
        assert refused.status_code == 429
        found = read_stream(await resume(server, path, body, 3, whole.lines[:3]))
        assert by_choice(found.frames) == by_choice(whole.frames[3:])
