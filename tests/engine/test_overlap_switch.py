"""Where steps are planned ahead."""

import pytest
import torch

from paternoster_contract.engine_args import EngineArgs
from paternoster_engine.build import overlaps
from paternoster_engine.model.errors import ModelError

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("device", "settings", "expected"),
    [
        (CPU, {}, False),
        (CPU, {"overlap": "on"}, True),
        (CPU, {"overlap": "on", "preemption": "swap", "tensor_parallel_size": 3}, True),
        (CUDA, {}, True),
        (CUDA, {"overlap": "off"}, False),
        (CUDA, {"preemption": "swap"}, False),
        (CUDA, {"tensor_parallel_size": 2}, False),
    ],
    ids=str,
)
def test_auto_is_on_for_one_cuda_device_without_swap(
    device: torch.device, settings: dict[str, str | int], expected: bool
) -> None:
    assert overlaps(EngineArgs.model_validate(settings), device) is expected


@pytest.mark.parametrize("settings", [{"preemption": "auto"}, {"tensor_parallel_size": 2}], ids=str)
def test_on_says_what_it_needs(settings: dict[str, str | int]) -> None:
    with pytest.raises(ModelError, match=r"overlap is 'on' with preemption .*: on CUDA it needs 'recompute' and 1"):
        overlaps(EngineArgs.model_validate({"overlap": "on", **settings}), CUDA)
