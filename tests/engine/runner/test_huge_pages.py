"""Memory asked for in huge pages is memory like any other."""

import mmap

import pytest
import torch

from paternoster_engine.runner import huge_pages


@pytest.mark.parametrize("advice", ["given", "refused", "unknown"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_zeros_that_can_be_written(advice: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    if advice == "refused":
        monkeypatch.setattr(mmap, "MADV_HUGEPAGE", -1)
    elif advice == "unknown":
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    made = huge_pages.zeros((3, 5, 7), dtype)
    assert torch.equal(made, torch.zeros(3, 5, 7, dtype=dtype))
    made[1, 2] = 4
    assert made.sum() == 28
