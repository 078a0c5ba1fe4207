"""A draft model: proposes how requests go on, a token for each of them in each of its steps."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from paternoster_engine.core.batch import Batch, ScheduledRequest
from paternoster_engine.core.block_table import BlockTable
from paternoster_engine.core.matching import ProposedRow
from paternoster_engine.core.model_drafts import DraftTask
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.runner.protocol import SynchronousRunner
from paternoster_engine.runner.step_input import HostStep
from paternoster_engine.sampling.device_sampler import DeviceSampler
from paternoster_engine.sampling.row_sampler import RowSampler
from paternoster_engine.sampling.sampler import Sampler
from paternoster_kernels import RaggedBatch
from paternoster_kernels.reference.sample import NO_TOKEN

log = logging.getLogger(__name__)

REPEATS = 5
"""Steps that are timed of either model; the fastest count."""
BLOCK = 1
"""Timed tokens lie in this block of an empty pool."""


class DraftModel:
    """Chooses each token as the model would: by the request's settings, with its seed and for its position.

    So what is drawn is what the model draws wherever their logits are alike, and not only where all is greedy.
    """

    def __init__(
        self,
        model: Decoder,
        kv_cache: Sequence[torch.Tensor],
        sampler: Sampler | DeviceSampler | RowSampler,
        cost: float = 0.0,
    ) -> None:
        """``kv_cache``: as many blocks as the model's pool has. ``cost``: of a step, in steps of the model."""
        self._model = model
        self._kv_cache = kv_cache
        self._sampler = sampler
        self.cost = cost

    def propose(self, tasks: Sequence[DraftTask]) -> Sequence[Sequence[int]]:
        """See :class:`paternoster_engine.core.model_drafts.Drafter`; nothing more once a step could not be computed."""
        try:
            return self.compute_drafts(tasks)
        except Exception:
            log.exception("the draft model failed: from here on nothing is proposed by it")
            self.cost = math.inf
            return [()] * len(tasks)

    @torch.inference_mode()
    def compute_drafts(self, tasks: Sequence[DraftTask]) -> Sequence[Sequence[int]]:
        """Propose as :meth:`propose` does; raises what goes wrong."""
        proposed: list[list[int]] = [[] for _ in tasks]
        chunks = [
            _Chunk(task, tokens, task.start, task.request.slice_tokens(task.start, task.stop))
            for task, tokens in zip(tasks, proposed, strict=True)
        ]
        while chunks:
            # Single tokens first, longest first, as attention takes them best.
            chunks.sort(key=lambda chunk: (len(chunk.tokens) > 1, -chunk.stop))
            logits = self._forward(chunks)
            chunks = self._choose_tokens(logits, [chunk for chunk in chunks if chunk.task.depth])
        return proposed

    def _forward(self, chunks: Sequence["_Chunk"]) -> torch.Tensor:
        """Logits after the last token of each chunk of a request that is to go on."""
        token_ids: list[int] = []
        positions: list[int] = []
        lasts: list[int] = []
        for chunk in chunks:
            token_ids += chunk.tokens
            positions += range(chunk.start, chunk.stop)
            if chunk.task.depth:
                lasts.append(len(token_ids) - 1)
        ragged = RaggedBatch(
            [len(chunk.tokens) for chunk in chunks],
            [chunk.stop for chunk in chunks],
            [chunk.task.request.block_table.block_ids for chunk in chunks],
        )
        step = HostStep(token_ids, positions, lasts, [ragged])
        return self._model.forward(step.on_device(self._kv_cache[0], self._model.plan_attention), self._kv_cache)

    def _choose_tokens(self, logits: torch.Tensor, chunks: Sequence["_Chunk"]) -> list["_Chunk"]:
        """Propose a token after each of ``chunks``; returns those that go on with it."""
        if not chunks:
            return []
        rows = [chunk.row for chunk in chunks]
        following = []
        for chunk, row, token in zip(chunks, rows, self._sampler.sample(logits, rows), strict=True):
            if row.is_unsatisfiable or token == NO_TOKEN:
                continue
            chunk.proposed.append(token)
            if len(chunk.proposed) < chunk.task.depth:
                following.append(_Chunk(chunk.task, chunk.proposed, chunk.stop, [token]))
        return following


class _Chunk(NamedTuple):
    """Tokens that the draft model has yet to read."""

    task: DraftTask
    proposed: list[int]
    """So far."""
    start: int
    tokens: list[int]

    @property
    def stop(self) -> int:
        return self.start + len(self.tokens)

    @property
    def row(self) -> Request | ProposedRow:
        """For whom the next token is chosen."""
        return ProposedRow(self.task.request, self.proposed) if self.proposed else self.task.request


def relative_cost(drafter: DraftModel, runner: SynchronousRunner) -> float:
    """Time of a step of one token of the draft model over that of the model's; the pools of both are empty."""
    request = Request(
        RequestSpec("timed", [0], SamplingParams(max_tokens=2, temperature=0.0)), block_table=BlockTable([BLOCK])
    )
    batch = Batch(0, (ScheduledRequest(request, 0, 1, samples=True),))
    task = DraftTask(request, 0, 1, 1)
    steps: tuple[Callable[[], object], ...] = (lambda: drafter.compute_drafts([task]), lambda: runner.execute(batch))
    fastest = [math.inf, math.inf]
    # In turns, so that whatever else the machine does falls on both alike.
    for _ in range(REPEATS):
        for place, step in enumerate(steps):
            started = time.perf_counter()
            step()
            fastest[place] = min(fastest[place], time.perf_counter() - started)
    return fastest[0] / fastest[1]
