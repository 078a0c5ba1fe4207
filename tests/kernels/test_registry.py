"""Which implementation runs where, and that all implementations of an operation are called alike."""

import inspect

import pytest
import torch

from paternoster_kernels import OPS, pick_kernel
from paternoster_kernels.cpu.library import load_library
from paternoster_kernels.registry import CPU_MODULES, TRITON_MODULES, cpu_op, triton_op


@pytest.mark.parametrize("op", sorted(OPS))
def test_a_cpu_runs_no_triton(op: str) -> None:
    assert not pick_kernel(op, torch.device("cpu")).__module__.startswith("paternoster_kernels.triton.")


@pytest.mark.parametrize("op", sorted(TRITON_MODULES))
def test_cuda_runs_triton_called_like_the_reference(op: str) -> None:
    pytest.importorskip("triton")
    chosen = pick_kernel(op, torch.device("cuda"))
    assert chosen is triton_op(op)
    # The kernel may take more, such as where to write.
    names = list(inspect.signature(OPS[op]).parameters)
    assert list(inspect.signature(chosen).parameters)[: len(names)] == names


@pytest.mark.parametrize("op", sorted(CPU_MODULES))
def test_cpp_runs_where_it_can_called_like_the_reference(op: str) -> None:
    assert list(inspect.signature(cpu_op(op)).parameters) == list(inspect.signature(OPS[op]).parameters)
    assert pick_kernel(op, torch.device("cpu")) is (OPS[op] if load_library() is None else cpu_op(op))


def test_an_operation_without_a_kernel_runs_its_reference() -> None:
    assert pick_kernel("rope", torch.device("cuda")) is OPS["rope"]


def test_unknown_operation() -> None:
    with pytest.raises(KeyError, match="flash"):
        pick_kernel("flash", torch.device("cuda"))
