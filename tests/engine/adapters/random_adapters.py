"""Adapters of random numbers as PEFT writes them, without peft, which takes seconds to import."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from paternoster_engine.model.adapters.lora_adapter import list_modules
from paternoster_engine.model.config import ModelConfig


def save_adapter(folder: Path, config: ModelConfig, targets: Sequence[str], *, seed: int, rank: int = 4) -> Path:
    """So large that tokens change; the same numbers for the same ``seed``."""
    generator, tensors = torch.Generator().manual_seed(seed), {}
    for name, module in list_modules(config).items():
        if name.rpartition(".")[2] in targets:
            down = torch.randn(rank, module.inputs, generator=generator) * module.inputs**-0.5
            tensors[f"base_model.model.{name}.lora_A.weight"] = down
            tensors[f"base_model.model.{name}.lora_B.weight"] = torch.randn(module.outputs, rank, generator=generator)
    folder.mkdir(exist_ok=True)
    fields = {"peft_type": "LORA", "r": rank, "lora_alpha": 8 * rank, "target_modules": list(targets)}
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    # Beside it and moved, so that one that is mapped stays as it was.
    save_file(tensors, folder / "new")
    (folder / "new").rename(folder / "adapter_model.safetensors")
    return folder
