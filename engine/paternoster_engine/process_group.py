"""Collective operations between the ranks of a tensor-parallel model."""

import threading
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed

TIMEOUT = timedelta(minutes=10)
"""Longest wait for another rank, also for its process to start."""
LEAVE_TIMEOUT = 5.0
"""Seconds. NCCL waits for collectives in progress before it leaves, which ranks that ended never finish."""


class Ranks:
    """A single rank with the whole model: every collective returns its input."""

    rank = 0
    size = 1

    def all_reduce(self, part: torch.Tensor) -> torch.Tensor:
        """Return the sum of all ranks' ``part``, on every rank; may be computed in place."""
        return part

    def gather_columns(self, part: torch.Tensor) -> torch.Tensor:
        """Return all ranks' ``part [rows, columns]`` side by side on rank 0; on other ranks, ``part``."""
        return part

    def all_reduce_min(self, number: int) -> int:
        """Return the smallest of all ranks' ``number``, on every rank."""
        return number


ALONE = Ranks()


class ProcessGroup(Ranks):
    """The ranks of one model, each in a process of its own: NCCL on CUDA, gloo on CPUs."""

    def __init__(
        self, rank: int, size: int, device: torch.device, rendezvous: Path, *, fixed_order: bool = False
    ) -> None:
        """Return when all ranks have joined; raises ``RuntimeError`` when one does not join within ``TIMEOUT``.

        ``rendezvous``: a file in a folder that all ranks see. ``fixed_order``: sum in the order of the ranks, so that
        a row's sum does not depend on how many rows there are, for more traffic (a ring begins each of its segments at
        another rank).
        """
        self.rank = rank
        self.size = size
        self._device = device
        self._fixed_order = fixed_order
        if device.type == "cuda":
            torch.cuda.set_device(device)
        distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=distributed.FileStore(str(rendezvous), size),  # type: ignore[attr-defined]  # missing in torch's types
            rank=rank,
            world_size=size,
            timeout=TIMEOUT,
            device_id=device if device.type == "cuda" else None,
        )
        # NCCL connects at the first collective: at start-up, not in the first step.
        self.all_reduce(torch.zeros(1, device=device))

    def all_reduce(self, part: torch.Tensor) -> torch.Tensor:
        if not self._fixed_order:
            distributed.all_reduce(part)
            return part
        parts = part.new_empty(self.size, *part.shape)
        distributed.all_gather_into_tensor(parts.view(-1, *part.shape[1:]), part.contiguous())
        total = parts[0].float()
        for other in parts[1:]:
            total += other
        return total.to(part.dtype)

    def gather_columns(self, part: torch.Tensor) -> torch.Tensor:
        if len(part) == 0:
            return part.new_empty(0, part.shape[1] * self.size)
        parts = [torch.empty_like(part) for _ in range(self.size)] if self.rank == 0 else None
        distributed.gather(part.contiguous(), parts, dst=0)
        return part if parts is None else torch.cat(parts, -1)

    def all_reduce_min(self, number: int) -> int:
        numbers = torch.tensor([number], dtype=torch.int64, device=self._device)
        distributed.all_reduce(numbers, distributed.ReduceOp.MIN)
        return int(numbers.item())

    def close(self, timeout: float = LEAVE_TIMEOUT) -> bool:
        """Leave the group, which ends it for all ranks; return whether that took at most ``timeout`` seconds."""
        leaving = threading.Thread(target=distributed.destroy_process_group, name="leave-ranks", daemon=True)
        leaving.start()
        leaving.join(timeout)
        return not leaving.is_alive()
