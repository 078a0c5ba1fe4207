"""A runner that also moves blocks between the KV pool and host memory, and measures what that and a step cost."""

import time
from collections.abc import Callable, Sequence

import torch

from paternoster_engine.core.batch import Batch
from paternoster_engine.core.preemption_cost import PreemptionCost
from paternoster_engine.engine import Runner
from paternoster_engine.runner.kv_pool import HostKVCache


class SwappingRunner:
    """Makes a batch's copies, out before in, and hands its tokens to another runner."""

    def __init__(
        self,
        runner: Runner,
        host: HostKVCache,
        cost: PreemptionCost,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._runner = runner
        self._host = host
        self._cost = cost
        self._clock = clock

    @torch.inference_mode()
    def execute(self, batch: Batch) -> Sequence[int | None]:
        """Sampled token of each scheduled item, None where the item does not sample."""
        if batch.swap_out:
            self._timed(self._host.save, batch.swap_out)
        if batch.swap_in:
            self._timed(self._host.load, batch.swap_in)
        if not batch.scheduled:
            return []
        started = self._clock()
        sampled = self._runner.execute(batch)
        self._cost.observe_step(batch.num_tokens, self._clock() - started)
        return sampled

    def _timed(self, move: Callable[[Sequence[tuple[int, int]]], None], copies: Sequence[tuple[int, int]]) -> None:
        started = self._clock()
        move(copies)
        self._cost.observe_copy(len(copies), self._clock() - started)
