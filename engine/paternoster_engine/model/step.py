"""One step's tensors, as a model reads them."""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class StepInput:
    """The tokens of one forward pass, sequence after sequence."""

    token_ids: torch.Tensor
    """``[tokens]`` int64."""
    positions: torch.Tensor
    """``[tokens]`` int64: place of each token in its own sequence."""
    sample_rows: torch.Tensor
    """``[rows]`` int64: tokens whose logits are wanted."""
    attention: Any
    """Where keys and values lie: the plan of the backend that runs the attention; every one has ``slots [tokens]``."""
