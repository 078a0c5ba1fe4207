"""Memory asked for in huge pages is memory like any other."""

import mmap
import resource
import threading

import pytest
import torch

from paternoster_kernels.cpu import huge_pages


@pytest.mark.parametrize("advice", ["given", "refused", "unknown", "not of old kernels"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_zeros_that_can_be_written(advice: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    if advice == "refused":
        monkeypatch.setattr(mmap, "MADV_HUGEPAGE", -1)
    elif advice == "unknown":
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    elif advice == "not of old kernels":
        monkeypatch.setattr(huge_pages, "MADV_POPULATE_WRITE", -1)
    made = huge_pages.zeros((3, 5, 7), dtype)
    assert torch.equal(made, torch.zeros(3, 5, 7, dtype=dtype))
    made[1, 2] = 4
    assert made.sum() == 28


@pytest.mark.parametrize("wait", [True, False])
def test_zeros_are_there_before_they_are_used(wait: bool) -> None:
    made = huge_pages.zeros((2**23,), torch.float32, wait=wait)
    assert not made.any()
    for thread in threading.enumerate():
        if thread.name == "zeros":
            thread.join()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    made[:: mmap.PAGESIZE // 4] = 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 200


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


def test_memory_asked_for_under_inference_mode_can_be_written_outside() -> None:
    arena = huge_pages.Arena()
    with torch.inference_mode():
        first = arena.empty(64)
    arena.empty(64).copy_(first.fill_(3))
    with torch.inference_mode():
        third = arena.empty(64)
    assert torch.equal(third.copy_(first), first)
