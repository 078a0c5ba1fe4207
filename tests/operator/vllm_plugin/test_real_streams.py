"""Agents' streams of a real vLLM, cut at many frames and continued by the same server: ``make vllm`` sets it up."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.operator.vllm_plugin.agents_calls import CALLS, CHATS, FLAGS, AgentsCall

from harness.servers import free_port
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.stream_journal import JOURNAL, RESUME, STREAM_ID, Resume, StreamId
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.journaled_stream import JournaledStream
from paternoster_http.open_requests import open_request_alone
from paternoster_operator.engines.vllm_arguments import GATEWAY_ENV, VllmKind
from paternoster_operator.engines.vllm_plugin import write_plugin
from peers.systems.server import RunningServer, server
from peers.systems.vllm_cpu import ENVIRONMENT, VllmCpu
from peers.systems.weights import checkpoint

pytestmark = [pytest.mark.other_engine, pytest.mark.timeout(900)]
CUTS = 5
"""Cuts of each stream, and one behind all of its tokens."""
END = b"\n\n"


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    if os.environ.get("REQUIRE_COMPONENTS"):
        VllmCpu().set_up()
    elif not ENVIRONMENT.python.is_file():
        pytest.skip(f"there is no vLLM in {ENVIRONMENT.folder}: run 'make vllm'")
    folder, port = tmp_path_factory.mktemp("vllm"), free_port()
    write_plugin(folder / "plugin")
    settings = EngineArgs(
        model=f"file://{checkpoint()}", served_model_name=("model",), port=port, max_num_seqs=8, max_model_len=1024,
        max_batched_tokens=512, kv_cache_memory=64 * 2**20, dtype="bfloat16",
    )  # fmt: skip
    launch = VllmKind().launch(settings, ["--enforce-eager", *FLAGS])
    program = ENVIRONMENT.folder / "bin" / launch.command[0]
    env = {**launch.env, "PYTHONPATH": str(folder / "plugin"), "VLLM_CPU_OMP_THREADS_BIND": "nobind", GATEWAY_ENV: "1"}
    command: list[str | Path] = [program, *launch.command[1:], *launch.args]
    with server(command, port, folder / "log", model="model", env={**env, "OMP_NUM_THREADS": "2"}) as running:
        yield running


class Client:
    """Sends a call as a gateway does."""

    def __init__(self, url: str, call: AgentsCall, number: int) -> None:
        self._url = url + call.path
        self._call = call
        self.body = {"model": "model", **call.body}
        self._headers = {STREAM_ID: StreamId(f"{number:032x}", 1795792422).encode(), "Content-Type": "application/json"}

    async def send(self, stream: JournaledStream | None = None) -> httpx.Response:
        """What follows the frames of ``stream``."""
        content, headers = json.dumps(self.body).encode(), self._headers
        if stream is not None:
            journal = stream.build_resumption(Call(self._call.path, "model", b"", {})).journal
            content += journal
            headers = {**headers, RESUME: Resume(stream.num_frames, len(journal), stream.numerics).encode()}
        async with httpx.AsyncClient(timeout=300) as client:
            return await client.post(self._url, content=content, headers=headers)


@pytest.mark.parametrize("kind", CALLS)
async def test_a_stream_that_is_cut_goes_on_to_a_valid_answer(vllm: RunningServer, kind: str) -> None:
    """Frames that only replayed tokens make are byte for byte those of the first time."""
    call = CALLS[kind]
    client = Client(vllm.url, call, list(CALLS).index(kind))
    answer = await client.send()
    assert answer.status_code == 200, answer.text
    numerics = answer.headers[JOURNAL]
    first = [frame + END for frame in answer.content.split(END) if frame]
    whole = JournaledStream(numerics, open_request_alone()).feed(answer.content)
    call.check(whole)
    last_token = max(number for number, frame in enumerate(first) if not frame.startswith(b": journal []\n")) + 1
    step = max(1, last_token // (CUTS + 1))
    equal = 0
    cuts = sorted({1, *range(step, last_token, step), last_token})
    for cut in cuts:
        stream = JournaledStream(numerics, open_request_alone())
        got = b"".join(map(stream.feed, first[:cut]))
        rest = await client.send(stream)
        assert (rest.status_code, rest.headers[JOURNAL]) == (200, numerics)
        stream.switch_replica()
        got += stream.feed(rest.content)
        assert not stream.handed_over
        call.check(got)
        equal += got == whole
        if cut == last_token:
            assert got == whole, "no token was computed"
    print(
        f"{kind}: {equal} of {len(cuts)} cut streams of {len(first)} frames are byte for byte the one that was not cut"
    )


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"bad_words": ["Paris"]}, "bad_words"),
        ({"vllm_xargs": {"a": 1}}, "extra_args"),
    ],
)
async def test_what_is_not_continued_is_named(vllm: RunningServer, fields: dict[str, Any], name: str) -> None:
    call = AgentsCall(CHATS, CALLS["schema"].body | {"max_tokens": 8} | fields, lambda _: None)
    client = Client(vllm.url, call, 99)
    answer = await client.send()
    stream = JournaledStream(answer.headers[JOURNAL], open_request_alone())
    stream.feed(answer.content[: answer.content.index(END) + len(END)])
    rest = await client.send(stream)
    assert (rest.status_code, rest.headers["X-Paternoster-Not-Continued"]) == (400, name)
