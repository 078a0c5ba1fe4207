"""Where steps are planned ahead."""

import pytest
import torch

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import uses_overlap

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("device", "settings", "expected"),
    [
        (CPU, {}, False),
        (CUDA, {}, True),
        (CUDA, {"preemption": "swap"}, False),
        (CUDA, {"tensor_parallel_size": 2}, False),
    ],
    ids=str,
)
def test_on_one_cuda_device_without_swap(device: torch.device, settings: dict[str, str | int], expected: bool) -> None:
    assert uses_overlap(EngineArgs.model_validate(settings), device) is expected
