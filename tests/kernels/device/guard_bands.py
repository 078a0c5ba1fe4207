"""Memory around and inside a kernel's outputs that shows whether it wrote where it should, and only there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

BAND = 512
"""Elements before and after each output."""
POISON = {torch.int32: -1_234_567, torch.int64: -1_234_567, torch.uint8: 171, torch.int8: -85}


def poison(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of what no kernel would write: NaN, or a number far from all others."""
    if dtype == torch.float8_e4m3fn:
        return torch.full(shape, 127, dtype=torch.uint8, device=device).view(dtype)
    return torch.full(shape, POISON.get(dtype, float("nan")), dtype=dtype, device=device)


@contextmanager
def guarded_outputs() -> Iterator[None]:
    """Inside, new tensors are poisoned and lie between bands; leaving checks that the bands are untouched."""
    buffers: list[torch.Tensor] = []

    def empty(*size: Any, dtype: torch.dtype = torch.float32, device: Any = "cpu") -> torch.Tensor:
        shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
        count = int(torch.Size(shape).numel())
        buffers.append(poison((count + 2 * BAND,), dtype, torch.device(device)))
        return buffers[-1][BAND : BAND + count].view(shape)

    original = torch.Tensor.new_empty

    def new_empty(self: torch.Tensor, *size: Any, **other: Any) -> torch.Tensor:
        # The interpreter makes tensors of its own, which name a device.
        return original(self, *size, **other) if other else empty(*size, dtype=self.dtype, device=self.device)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "empty", empty)
        patch.setattr(torch.Tensor, "new_empty", new_empty)
        yield
    assert buffers
    for buffer in buffers:
        for band in (buffer[:BAND], buffer[-BAND:]):
            assert torch.equal(band.view(torch.uint8), poison((BAND,), buffer.dtype, buffer.device).view(torch.uint8))
