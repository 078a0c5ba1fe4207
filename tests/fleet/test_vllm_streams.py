"""Two real vLLM behind one gateway, of which one is killed under streams: each stream goes on at the other one.

``PATERNOSTER_KILLS`` is how often in each test, 2 by default; another vLLM takes a minute or more to start.
"""

import asyncio
import json
import os
import random
import re
import shutil
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import openai
import psutil
import pytest
from safetensors.numpy import save_file
from tests.fleet.fleet import Up, find_flag, wait_for
from tests.fleet.test_streams_survive import count_continued, read_streams
from tests.fleet.test_vllm import RUNNING, SLOTS, STARTS_WITHIN, complete, read, spec
from tests.fleet.test_vllm import program as program
from tests.operator.vllm_plugin.agents_calls import CALLS, FLAGS, AgentsCall
from tqdm import tqdm

from peers.systems.weights import checkpoint

KILLS = int(os.environ.get("PATERNOSTER_KILLS", "2"))
SEEDS = range(4)
PIECES = 20 * len(SEEDS)
"""Pieces of all streams before a kill."""
AGENTS_PIECES = range(5, 250)
"""Pieces of agents' streams before a kill, of which one number is drawn for each."""

UNLIKELY = re.compile(r"\u0120|.*([\u010a\u0109\u010d]|\u0120\u0120|<(?!\|)).*", re.DOTALL)
"""Tokens of white space, and those by which another call of a tool begins, as the tokenizer spells them."""
INDEXED = "paternoster_gateway_replicas_indexed 2.0"

pytestmark = [pytest.mark.other_engine, pytest.mark.timeout(1200 + 300 * KILLS)]


def fill_queue(endpoint: str) -> None:
    """So that both vLLMs know the pace of their queues."""

    def send(number: int) -> None:
        with suppress(openai.InternalServerError):
            complete(endpoint, number)

    with ThreadPoolExecutor(4 * SLOTS) as threads:
        list(threads.map(send, range(4 * SLOTS)))


def find_busiest(fleet: Up) -> psutil.Process:
    """The API server of the vLLM that runs most requests."""
    url = max(fleet.replicas().values(), key=lambda url: read(url)[RUNNING])
    port = url.rpartition(":")[2]
    return psutil.Process(next(pid for pid in fleet.engine_pids() if find_flag(pid, "--port") == port))


class Victim(StrEnum):
    """Which processes of a vLLM are killed."""

    WHOLE = "all"
    CORE = "its engine's"
    SERVER = "its API server"


class Killer:
    """Kills processes of the busiest vLLM after ``pieces`` of all streams."""

    def __init__(self, fleet: Up, pieces: int = PIECES, victim: Victim = Victim.WHOLE) -> None:
        self._fleet = fleet
        self._pieces = pieces
        self._victim = victim

    @property
    def has_killed(self) -> bool:
        return self._pieces <= 0

    def count_piece(self) -> None:
        self._pieces -= 1
        if self._pieces == 0:
            server = find_busiest(self._fleet)
            engine = [] if self._victim is Victim.SERVER else server.children(recursive=True)
            for process in [*engine, *([] if self._victim is Victim.CORE else [server])]:
                process.kill()


def test_streams_of_killed_vllms_go_on(program: str, up: Callable[..., Up]) -> None:
    """Also where the queue of the other one is bounded by time, and has no place for a new request."""
    bounds = {"autoscaling": {"mode": "Auto", "minReplicas": 2, "maxReplicas": 2}, "slo": {"ttftP95Milliseconds": 30}}
    fleet = up(**spec(program), **bounds)
    endpoint = fleet.ready(2, STARTS_WITHIN)
    fill_queue(endpoint)
    wait_for(lambda: "queue wait 0->10 ms" in fleet.explain(), "a bound of the queue")
    undisturbed = asyncio.run(read_streams(endpoint, SEEDS, lambda: None))
    equal = 0
    for _ in tqdm(range(KILLS), desc="kills"):
        killer = Killer(fleet)
        texts = asyncio.run(read_streams(endpoint, SEEDS, killer.count_piece))
        equal += sum(text == twin for text, twin in zip(texts, undisturbed, strict=True))
        assert fleet.ready(2, STARTS_WITHIN) == endpoint
    continued = asyncio.run(count_continued(endpoint, "broken"))
    print(f"{KILLS} kills: {continued:.0f} streams went on elsewhere, {equal} of {KILLS * len(SEEDS)} texts were equal")
    assert continued >= KILLS
    assert fleet.interrupt() == 0


def read_text(url: str) -> str:
    with urllib.request.urlopen(url) as response:
        return str(response.read().decode())


async def read_call(
    session: aiohttp.ClientSession, endpoint: str, call: AgentsCall, on_piece: Callable[[], None]
) -> bytes:
    """Every byte of one stream."""
    answer = b""
    async with session.post(endpoint + call.path, json={"model": "smollm2", **call.body}) as response:
        assert response.status == 200, await response.text()
        async for piece in response.content.iter_any():
            answer += piece
            on_piece()
    return answer


async def find_faults(endpoint: str, on_piece: Callable[[], None]) -> list[str]:
    """Reasons why answers are not whole and valid, of a stream of each kind, read at once."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1200)) as session:
        reads = [read_call(session, endpoint, call, on_piece) for call in CALLS.values()]
        answers = await asyncio.gather(*reads, return_exceptions=True)
    faults = []
    for (kind, call), answer in zip(CALLS.items(), answers, strict=True):
        try:
            if isinstance(answer, BaseException):
                raise answer
            call.check(answer)
        except Exception as error:
            faults.append(f"{kind}: {error!r}: {answer!r}")
    return faults


def write_model(folder: Path) -> Path:
    """Random weights with the real model's tokenizer, whose steps are short on a busy machine, too.

    One whose steps take 4 s and more counts as hung. Of white space and calls of tools grammars allow any number: a
    constant in the vector of each token makes theirs unlikely.
    """
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(checkpoint() / name, folder)
    shape = {
        "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "tie_word_embeddings": False,
    }  # fmt: skip
    config = json.loads((checkpoint() / "config.json").read_text()) | shape
    (folder / "config.json").write_text(json.dumps(config))
    chance = np.random.default_rng(0)

    def draw(*size: int) -> Any:
        return chance.normal(0, 0.02, size).astype(np.float32)

    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    unlikely = [number for token, number in vocabulary.items() if UNLIKELY.fullmatch(token)]
    embedding, head = draw(config["vocab_size"], 128), draw(config["vocab_size"], 128)
    embedding[:, 0], head[:, 0] = 1, 0
    head[unlikely, 0] = -1
    ones = np.ones(128, np.float32)
    tensors = {"model.embed_tokens.weight": embedding, "model.norm.weight": ones, "lm_head.weight": head}
    for layer in range(2):
        sizes = {
            "self_attn.q": (128, 128), "self_attn.k": (64, 128), "self_attn.v": (64, 128), "self_attn.o": (128, 128),
            "mlp.gate": (256, 128), "mlp.up": (256, 128), "mlp.down": (128, 256),
        }  # fmt: skip
        tensors |= {f"model.layers.{layer}.{name}_proj.weight": draw(*size) for name, size in sizes.items()}
        tensors |= {f"model.layers.{layer}.{name}_layernorm.weight": ones for name in ("input", "post_attention")}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_agents_streams_of_killed_vllms_go_on_to_valid_answers(
    program: str, up: Callable[..., Up], tmp_path: Path
) -> None:
    """Tools, schemas, choices and log probabilities, by chats, completions, Responses and Messages."""
    wanted = {**spec(program), "model": {"source": f"file://{write_model(tmp_path / 'model')}"}}
    wanted["engine"] |= {"maxNumSeqs": 16, "maxModelLen": 1024, "dtype": "float32"}
    wanted["engine"]["runtime"]["args"] += FLAGS
    # A busy machine takes one out of rotation while it compiles code in its first steps: after a kill none is left.
    wanted["engine"]["runtime"]["env"].append({"name": "TORCH_COMPILE_DISABLE", "value": "1"})
    wanted["admission"] = {"holdTimeoutSeconds": 600}
    fleet = up(**{**wanted, "concurrency": {"initial": 16}, "replicas": 2})
    endpoint = fleet.ready(2, STARTS_WITHIN)
    wait_for(lambda: INDEXED in read_text(f"{endpoint}/metrics"), "text chains of both vLLMs")
    faults, kills = asyncio.run(find_faults(endpoint, lambda: None)), Counter[str]()
    assert not faults, "\n".join(faults)
    for number in range(KILLS):
        victim = list(Victim)[number % len(Victim)]
        killer = Killer(fleet, random.choice(AGENTS_PIECES), victim)
        faults += asyncio.run(find_faults(endpoint, killer.count_piece))
        kills[victim.value] += killer.has_killed
        assert fleet.ready(2, STARTS_WITHIN) == endpoint
        continued = {reason: asyncio.run(count_continued(endpoint, reason)) for reason in ("broken", "handed_over")}
        print(
            f"{time.strftime('%X')}: {kills.total()} kills ({dict(kills)}) under {len(CALLS)} streams each: "
            f"{len(faults)} not whole or not valid, went on elsewhere: {continued}", flush=True,
        )  # fmt: skip
    assert not faults, "\n".join(faults)
    assert (kills.total(), sum(continued.values()) > 0) == (KILLS, True)
    assert fleet.interrupt() == 0
