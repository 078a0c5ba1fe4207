"""One step's tensors, as a model reads them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paternoster_kernels.lora_batch import LoraBatch


@dataclass(frozen=True, slots=True)
class StepInput:
    """The tokens of one forward pass, sequence after sequence."""

    token_ids: torch.Tensor
    """``[tokens]`` int64."""
    positions: torch.Tensor
    """``[tokens]`` int64: place of each token in its own sequence."""
    sample_rows: torch.Tensor
    """``[rows]`` int64: tokens whose logits are wanted."""
    attention: Sequence[Any]
    """Where keys and values lie, for each group of layers: the plan of the backend that runs the attention. Every plan
    has ``slots [tokens]``.
    """
    lora: LoraBatch | None = None
    """Adapters of the rows; None where no row has one."""
