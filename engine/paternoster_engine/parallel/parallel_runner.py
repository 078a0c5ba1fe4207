"""Rank 0's runner: broadcasts each step to the other ranks, then computes its own part."""

from collections.abc import Sequence

import torch

from paternoster_engine.core.batch import Batch, BlockCopy, ScheduledRequest, StepResult
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.parallel.messages import CopyBlocks, LoadBlocks, SaveBlocks
from paternoster_engine.parallel.workers import Workers
from paternoster_engine.runner.device import device_fault
from paternoster_engine.runner.kv_pool import HostKVCache, HostMemory
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.runner.step_input import HostStep
from paternoster_engine.sampling.device_sampler import DeviceSampler
from paternoster_engine.sampling.row_sampler import RowSampler
from paternoster_engine.sampling.sampler import Sampler


class ParallelRunner(ModelRunner):
    """Samples on rank 0 from the logits of all ranks."""

    def __init__(
        self,
        model: Decoder,
        kv_cache: Sequence[torch.Tensor],
        sampler: Sampler | DeviceSampler | RowSampler,
        workers: Workers,
        host: HostMemory | None = None,
    ) -> None:
        """``model`` and ``kv_cache``: rank 0's part. ``host``: of all ranks, for batches that swap."""
        super().__init__(model, kv_cache, sampler, host)
        self._workers = workers

    @property
    def fault(self) -> str | None:  # type: ignore[override]
        return self._workers.fault

    @torch.inference_mode()
    def _compute_batch(self, batch: Batch, order: Sequence[ScheduledRequest], step: HostStep) -> StepResult:
        try:
            return super()._compute_batch(batch, order, step)
        except Exception:
            # CUDA reports an error in a kernel late, often only when the tokens are read.
            fault = self.fault or device_fault(self._kv_cache[0].device)
            if fault is not None:
                self._workers.mark_lost(fault)
            raise

    def _forward(self, step: HostStep) -> torch.Tensor:
        self._workers.broadcast(step)
        try:
            return super()._forward(step)
        except Exception as error:
            # The other ranks are at an unknown point of the step, and cannot be synchronised again.
            self._workers.mark_lost(f"a step failed on rank 0: {error}")
            raise

    def _copy(self, copies: Sequence[BlockCopy]) -> None:
        self._workers.broadcast(CopyBlocks(copies))
        super()._copy(copies)

    def close(self) -> None:
        """End the other ranks."""
        self._workers.close()


class ParallelHostKVCache:
    """Host memory of all ranks: each keeps its own heads of a block."""

    def __init__(self, own: HostKVCache, workers: Workers) -> None:
        self._own = own
        self._workers = workers

    def save(self, copies: Sequence[BlockCopy]) -> None:
        """Save blocks on every rank, see :meth:`HostKVCache.save`."""
        self._workers.broadcast(SaveBlocks(copies))
        self._own.save(copies)

    def load(self, copies: Sequence[BlockCopy]) -> None:
        """Load blocks on every rank, see :meth:`HostKVCache.load`."""
        self._workers.broadcast(LoadBlocks(copies))
        self._own.load(copies)
