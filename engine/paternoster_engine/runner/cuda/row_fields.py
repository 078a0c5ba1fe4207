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
    """:data:`FIELDS` for some rows, each ``[rows]``, in ``memory``, a tensor of bytes."""

    def __init__(self, rows: int, device: torch.device, *, pinned: bool = False) -> None:
        starts, size = {}, 0
        for name, dtype in FIELDS.items():
            starts[name] = size
            size += -(-rows * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        self.memory = torch.zeros(size, dtype=torch.uint8, device=device, pin_memory=pinned)
        self._views = {
            name: self.memory[start : start + rows * FIELDS[name].itemsize].view(FIELDS[name])
            for name, start in starts.items()
        }

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._views[name]
