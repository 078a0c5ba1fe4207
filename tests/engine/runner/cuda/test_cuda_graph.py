"""Capture and replay; the CUDA half on stand-ins that say in which order they were used."""

from contextlib import contextmanager
from typing import Any

import pytest
import torch

from paternoster_engine.runner.cuda.cuda_graph import WARM_UPS, CudaGraph, graph_pool

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_on_a_cpu_a_replay_is_the_call() -> None:
    calls: list[int] = []
    graph = CudaGraph(lambda: calls.append(1), CPU, graph_pool(CPU))
    assert calls == []
    graph.replay()
    graph.replay()
    assert calls == [1, 1]


class Stream:
    def __init__(self, name: str, calls: list[str]) -> None:
        self.name, self.calls = name, calls

    def wait_stream(self, other: "Stream") -> None:
        self.calls.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    current = Stream("current", calls)

    class Graph:
        def replay(self) -> None:
            calls.append("replay")

    @contextmanager
    def within(what: Any, **options: Any) -> Any:
        name = what.name if isinstance(what, Stream) else "graph"
        calls.append(f"{name} {options}" if options else name)
        yield
        calls.append(f"end {name}")

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream("aside", calls))
    monkeypatch.setattr(torch.cuda, "stream", within)
    monkeypatch.setattr(torch.cuda, "graph", within)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    return calls


def test_on_cuda_it_is_warmed_up_aside_and_called_no_more(calls: list[str]) -> None:
    graph = CudaGraph(lambda: calls.append("call"), CUDA, graph_pool(CUDA))
    assert calls == [
        "aside waits for current",
        "aside",
        *["call"] * WARM_UPS,
        "end aside",
        "current waits for aside",
        "graph {'pool': 'pool'}",
        "call",
        "end graph",
    ]
    calls.clear()
    graph.replay()
    assert calls == ["replay"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_a_graph_reads_what_its_tensors_hold_by_then() -> None:
    source, target = torch.zeros(3, device="cuda"), torch.zeros(3, device="cuda")
    graph = CudaGraph(lambda: target.copy_(source + 1), CUDA, graph_pool(CUDA))
    source.fill_(4.0)
    graph.replay()
    assert target.tolist() == [5.0] * 3
