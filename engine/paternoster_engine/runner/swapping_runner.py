"""A runner that also moves blocks between the KV pool and host memory, and measures what that and a step cost."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, cast

import torch

from paternoster_engine.core.batch import Batch, BlockCopy
from paternoster_engine.core.preemption import PreemptionCost
from paternoster_engine.engine import Runner, Tokens
from paternoster_engine.runner.worker import PreparingRunner


class HostMemory(Protocol):
    """Where blocks are copied to and from; each call returns when its copies are made."""

    def save(self, copies: Sequence[BlockCopy]) -> None: ...

    def load(self, copies: Sequence[BlockCopy]) -> None: ...


class SwappingRunner:
    """Makes a batch's copies, out before in, and hands its tokens to another runner."""

    def __init__(
        self,
        runner: Runner,
        host: HostMemory,
        cost: PreemptionCost,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._runner = runner
        self._host = host
        self._cost = cost
        self._clock = clock

    @property
    def fault(self) -> str | None:
        """That of the other runner."""
        return getattr(self._runner, "fault", None)

    def execute(self, batch: Batch) -> Sequence[int | None]:
        """Sampled token of each scheduled item, None where the item does not sample."""
        return self._run(batch, lambda: self._runner.execute(batch))

    def prepare(self, batch: Batch) -> Callable[[], Tokens]:
        """As :meth:`ModelRunner.prepare`, which the other runner must have."""
        return partial(self._run, batch, cast(PreparingRunner, self._runner).prepare(batch))

    @torch.inference_mode()
    def _run(self, batch: Batch, compute: Callable[[], Tokens]) -> Tokens:
        if batch.swap_out:
            self._timed(self._host.save, batch.swap_out)
        if batch.swap_in:
            self._timed(self._host.load, batch.swap_in)
        if not batch.scheduled and not batch.copies:
            return []
        started = self._clock()
        sampled = compute()
        self._cost.observe_step(batch.num_tokens, self._clock() - started)
        return sampled

    def _timed(self, move: Callable[[Sequence[tuple[int, int]]], None], copies: Sequence[tuple[int, int]]) -> None:
        started = self._clock()
        move(copies)
        self._cost.observe_copy(len(copies), self._clock() - started)
