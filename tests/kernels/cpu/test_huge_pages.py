"""Memory asked for in huge pages is memory like any other."""

import mmap

import pytest
import torch

from paternoster_kernels.cpu import huge_pages


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


def test_an_arena_keeps_tensors_apart() -> None:
    arena = huge_pages.Arena()
    wanted = [torch.randn(n, 3).to(torch.bfloat16) for n in (1, 7, 64)] + [torch.randn(2, 2**20), torch.randn(5)]
    made = [arena.copy(tensor) for tensor in wanted]
    for got, tensor in zip(made, wanted, strict=True):
        assert torch.equal(got, tensor)
        assert got.is_contiguous()
        assert got.data_ptr() % huge_pages.ALIGNMENT == 0
    assert made[0].data_ptr() % huge_pages.PAGE_BYTES == 0


def test_an_arena_copies_in_order_what_lies_otherwise() -> None:
    turned = torch.arange(6).view(2, 3).T
    got = huge_pages.Arena().copy(turned)
    assert torch.equal(got, turned)
    assert got.is_contiguous()
