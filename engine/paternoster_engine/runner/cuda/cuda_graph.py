"""A step that is launched many times with the same buffers: a CUDA graph where there is CUDA, else the call itself."""

from collections.abc import Callable
from typing import Any

import torch

WARM_UPS = 2
"""Calls before the capture, so that kernels are compiled and libraries have their workspaces."""


class CudaGraph:
    """``call()`` recorded once; :meth:`replay` runs it on whatever its tensors hold by then."""

    def __init__(self, call: Callable[[], None], device: torch.device, pool: Any = None) -> None:
        """``call`` neither waits for the device nor makes tensors that outlive it.

        It runs :data:`WARM_UPS` times on CUDA, on what its tensors hold now. ``pool``: memory that graphs share,
        from :func:`graph_pool`; no two of them may run at once.
        """
        self.replay = call if device.type == "cpu" else _capture_graph(call, device, pool)


def graph_pool(device: torch.device) -> Any:
    """Memory for the captures on ``device``; None on a CPU."""
    return None if device.type == "cpu" else torch.cuda.graph_pool_handle()


def _capture_graph(call: Callable[[], None], device: torch.device, pool: Any) -> Callable[[], None]:
    current, aside = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        for _ in range(WARM_UPS):
            call()
    current.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        call()
    return graph.replay
