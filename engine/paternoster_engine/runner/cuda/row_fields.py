"""What a decode step reads of its rows: several arrays in one piece of memory, so that one copy moves them."""

import torch

ALIGNMENT = 256
"""Bytes; each array begins as a tensor of its own would, so that kernels compiled for one suit the other."""

FIELDS: dict[str, torch.dtype] = {
    "token_ids": torch.int64,
    "positions": torch.int64,
    "slots": torch.int64,
    "sources": torch.int64,
    "columns": torch.int64,
    "seeds": torch.int64,
    "blocks": torch.int32,
    "seq_lens": torch.int32,
    "top_k": torch.int32,
    "top_p": torch.float32,
    "min_p": torch.float32,
    "temperature": torch.float32,
}
"""One number a row each. Positions are those before the step: it advances them itself."""


class RowFields:
    """:data:`FIELDS` for some rows, each ``[rows]``, in ``memory``, a tensor of bytes; ``blocks [groups, rows]``."""

    def __init__(self, rows: int, device: torch.device, *, num_groups: int = 1, pinned: bool = False) -> None:
        starts, size = {}, 0
        counts = {name: rows * num_groups if name == "blocks" else rows for name in FIELDS}
        for name, dtype in FIELDS.items():
            starts[name] = size
            size += -(-counts[name] * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        self.memory = torch.zeros(size, dtype=torch.uint8, device=device, pin_memory=pinned)
        self._views = {
            name: self.memory[start : start + counts[name] * FIELDS[name].itemsize].view(FIELDS[name])
            for name, start in starts.items()
        }
        self._views["blocks"] = self._views["blocks"].view(num_groups, rows)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._views[name]
