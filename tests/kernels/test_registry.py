"""Which implementation runs where, and that all implementations of an operation are called alike."""

import inspect

import pytest
import torch

from paternoster_kernels import OPS, pick
from paternoster_kernels.registry import TRITON_MODULES, triton_op


@pytest.mark.parametrize("op", sorted(OPS))
def test_a_cpu_runs_no_triton(op: str) -> None:
    assert not pick(op, torch.device("cpu")).__module__.startswith("paternoster_kernels.triton.")


@pytest.mark.parametrize("op", sorted(TRITON_MODULES))
def test_cuda_runs_triton_called_like_the_reference(op: str) -> None:
    pytest.importorskip("triton")
    chosen = pick(op, torch.device("cuda"))
    assert chosen is triton_op(op)
    # The kernel may take more, such as where to write.
    names = list(inspect.signature(OPS[op]).parameters)
    assert list(inspect.signature(chosen).parameters)[: len(names)] == names


def test_an_operation_without_a_kernel_runs_its_reference() -> None:
    assert pick("rope", torch.device("cuda")) is OPS["rope"]


def test_unknown_operation() -> None:
    with pytest.raises(KeyError, match="flash"):
        pick("flash", torch.device("cuda"))
