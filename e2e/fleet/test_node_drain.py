"""A node with long streams is drained by ``kubectl drain``: each goes on at a replica of another node.

The cluster gets a second node for it, with a containerd and a kubelet of its own.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from paternoster_e2e.cluster.network import FIRST
from paternoster_e2e.cluster.node import Node
from paternoster_e2e.fleet import Fleet
from paternoster_e2e.kubectl import until
from paternoster_e2e.release import drained_streams

pytestmark = pytest.mark.timeout(900)

STREAMS, TOKENS = 32, 900
"""All at once on a core that is shared, such streams take minutes."""
ENGINE = {"maxNumSeqs": STREAMS, "maxModelLen": 1024, "kvCacheMemory": "512Mi", "batchInvariant": True}
BEGUN, LATER = 20, 5
"""Pieces that each stream has when the drain begins, and more of them that each must get after it."""
TWINS = slice(None, None, 8)
"""Streams whose undisturbed twins are requested afterwards."""


class SeededStream:
    """One stream, of which text and pieces so far can be read."""

    def __init__(self, gateway: str, model: str, seed: int) -> None:
        self.text, self.pieces = "", 0
        self._client = openai.OpenAI(base_url=f"{gateway}/v1", api_key="none", max_retries=0, timeout=600)
        self._request: dict[str, Any] = {
            "model": model, "prompt": f"Story {seed} of a lift that never stops:", "seed": seed,
            "extra_body": {"ignore_eos": True},
        }  # fmt: skip

    def read(self, left: threading.Event) -> None:
        """Until the client has ``left``; raises what breaks the stream off."""
        with self._client.completions.create(**self._request, max_tokens=TOKENS, stream=True) as stream:
            for chunk in stream:
                self.text += chunk.choices[0].text
                self.pieces += 1
                if left.is_set():
                    return
        raise AssertionError(f"the stream ended after {self.pieces} pieces")

    def complete_undisturbed(self) -> str:
        """The text of the same request from its begin on, beyond what the stream got."""
        answer = self._client.completions.create(**self._request, max_tokens=self.pieces + 32)
        return answer.choices[0].text


@contextmanager
def reading(streams: list[SeededStream]) -> Iterator[list[Future[None]]]:
    """All of them at once while the block runs; what broke one off is in its future."""
    left = threading.Event()
    with ThreadPoolExecutor(len(streams)) as pool:
        try:
            yield [pool.submit(stream.read, left) for stream in streams]
        finally:
            left.set()


def pods_at(fleet: Fleet, node: str) -> list[str]:
    return [name for name, pod in fleet.all_pods().items() if pod["spec"].get("nodeName") == node]


def test_a_drained_node_hands_its_streams_over(fleet: Fleet, gateway: str, second_node: Node) -> None:
    fleet.kubectl("cordon", FIRST.name)
    fleet.apply(replicas=1, engine=ENGINE)
    fleet.until_ready(1)
    fleet.kubectl("uncordon", FIRST.name)
    [pod] = pods_at(fleet, second_node.name)
    streams = [SeededStream(gateway, fleet.name, seed) for seed in range(STREAMS)]
    before = drained_streams(fleet.kubectl)
    with reading(streams) as outcomes:
        until(lambda: min(stream.pieces for stream in streams) >= BEGUN, "all streams run", 300)
        fleet.kubectl("cordon", second_node.name)
        fleet.apply(replicas=2, engine=ENGINE)
        fleet.until_ready(2)
        assert fleet.running(pod) == STREAMS
        begun = [stream.pieces for stream in streams]
        began = time.monotonic()
        fleet.kubectl("drain", second_node.name, "--delete-emptydir-data", "--timeout=300s", timeout=310)
        took = time.monotonic() - began
        moved = drained_streams(fleet.kubectl) - before
        print(f"drain: {took:.1f} s, {moved:.0f} streams moved, each with {min(begun)} to {max(begun)} tokens by then")
        assert pods_at(fleet, second_node.name) == []
        assert moved == STREAMS
        pieces = [stream.pieces for stream in streams]
        until(
            lambda: all(stream.pieces >= had + LATER for stream, had in zip(streams, pieces, strict=True)),
            "all streams go on", 120,
        )  # fmt: skip
    assert [outcome.exception() for outcome in outcomes] == [None] * STREAMS
    with ThreadPoolExecutor() as pool:
        twins = list(pool.map(SeededStream.complete_undisturbed, streams[TWINS]))
    assert [twin.startswith(stream.text) for stream, twin in zip(streams[TWINS], twins, strict=True)] == [True] * 4
