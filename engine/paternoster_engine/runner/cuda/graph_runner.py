"""Decode-only batches by captured graphs, all others by the plain runner, with the same tokens."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.request import Request
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.runner.cuda.capture_sizes import capture_sizes, fitting_size
from paternoster_engine.runner.cuda.cuda_graph import CudaGraph, graph_pool
from paternoster_engine.runner.cuda.decode_slots import DecodeSlots
from paternoster_engine.runner.cuda.decode_step import DecodeStep
from paternoster_engine.runner.cuda.staging import decodes_alone, stage_step
from paternoster_engine.runner.device import device_fault
from paternoster_engine.runner.find_corrupted import without_token
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_kernels.reference.sample import NO_TOKEN

log = logging.getLogger(__name__)


class Pending:
    """A step that was launched; its tokens come when :meth:`result` is called."""

    def __init__(self, fetch: Callable[[], StepResult]) -> None:
        self._fetch = fetch
        self._result: StepResult | None = None

    def result(self) -> StepResult:
        """Wait for the device."""
        if self._result is None:
            self._result = self._fetch()
        return self._result


class GraphRunner:
    """Owns the decode buffers and their graphs.

    The input of a row may be a token that the submission before has yet to sample: it never leaves the device then.
    """

    def __init__(
        self,
        eager: ModelRunner,
        model: Decoder,
        kv_cache: Sequence[torch.Tensor],
        max_num_seqs: int,
        max_model_len: int,
    ) -> None:
        """``eager`` runs what graphs do not, on the same ``model`` and ``kv_cache``.

        Captures a graph for each of :func:`capture_sizes`, the largest first, so that the others fit in its memory.
        """
        self.fault: str | None = None
        """Why no step can be computed any more, from :func:`device_fault`."""
        self._eager = eager
        self._device = kv_cache[0].device
        self._rows = DecodeSlots(kv_cache[0].shape[2], len(model.config.layer_groups))
        self._step = DecodeStep(model, kv_cache, max_num_seqs, max_model_len)
        self._sizes = capture_sizes(max_num_seqs)
        pool, started = graph_pool(self._device), time.monotonic()
        self._graphs = {
            size: CudaGraph(partial(self._step.run, size), self._device, pool) for size in reversed(self._sizes)
        }
        log.info("%d decode steps captured in %.1f s", len(self._sizes), time.monotonic() - started)

    def supports_async_scheduling(self, batch: Batch) -> bool:
        unknown = [item for item in batch.scheduled if item.start >= item.request.num_tokens]
        return not unknown or (_is_captured(batch) and self._rows.sampled_inputs(unknown))

    @torch.inference_mode()
    def submit(self, batch: Batch) -> Pending:
        """Launch ``batch`` and return before it is computed, if it only decodes; else compute it.

        Raises :class:`UnknownToken` when an input is neither known nor sampled by the submission before.
        """
        if not _is_captured(batch):
            with self._watch_errors():
                result = self._eager.execute(batch)
            return Pending(lambda: result)
        with self._watch_errors():
            self._eager.swap(batch)
            slots = self._rows.assign_slots(batch.scheduled)
            stage_step(self._step, slots)
            self.replay(len(slots))
            return Pending(self._fetch([slot.row for slot in slots], [slot.item.request for slot in slots]))

    def replay(self, rows: int) -> None:
        """Launch the step of the first ``rows`` rows on what the buffers hold."""
        self._graphs[fitting_size(self._sizes, rows)].replay()

    def _fetch(self, order: Sequence[int], requests: Sequence[Request]) -> Callable[[], StepResult]:
        """Start to copy the rows' tokens to the host; the call waits for that."""
        sampled = self._step.tokens[: len(order)]
        if self._device.type == "cpu":
            host, copied = sampled.clone(), None
        else:
            host = torch.empty(len(order), dtype=torch.int64, pin_memory=True)
            host.copy_(sampled, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record()

        def fetch() -> StepResult:
            if copied is not None:
                with self._watch_errors():
                    copied.synchronize()
            rows = host.tolist()
            tokens = [rows[row] for row in order]
            corrupted = without_token(requests, requests, tokens)
            return StepResult([None if token == NO_TOKEN else token for token in tokens], corrupted=corrupted)

        return fetch

    @contextmanager
    def _watch_errors(self) -> Iterator[None]:
        """After an error, forget what the rows hold and see whether the device is still there."""
        try:
            yield
        except Exception:
            self._rows.clear()
            self.fault = device_fault(self._device)
            raise


def _is_captured(batch: Batch) -> bool:
    """Whether a captured step computes all of ``batch``."""
    return bool(batch.scheduled) and not batch.copies and all(map(decodes_alone, batch.scheduled))
