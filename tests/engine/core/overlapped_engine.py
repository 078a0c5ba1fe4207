"""An engine whose steps are planned while the one before runs, as late as its tokens can come."""

from collections.abc import Collection
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, cast

from tests.engine.core.fake_model import CheckedEngine, FakeModel

from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.block_table import BlockTable
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.kv.kv_groups import KVGroups
from paternoster_engine.core.request import Request
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.runner.protocol import DeferredStep


class LateModel:
    """The fake model behind ``submit``: it sees the requests as they were then.

    With ``chaining`` a step is submitted before the one ahead of it is computed, and finds its tokens here.
    """

    fault: str | None = None

    def __init__(self, model: FakeModel, *, chaining: bool, broken_steps: Collection[int] = ()) -> None:
        self._model = model
        self._chaining = chaining
        self._broken_steps = broken_steps
        self._sampled: dict[Request, int | None] = {}

    def supports_async_scheduling(self, batch: Batch) -> bool:
        return self._chaining

    def submit(self, batch: Batch) -> DeferredStep:
        has_all_tokens = all(item.stop <= item.request.num_tokens for item in batch.scheduled)
        assert has_all_tokens or self._chaining, "a step begins with a token that nobody knows"
        frozen = tuple(item._replace(request=_frozen(item.request)) for item in batch.scheduled)
        return DeferredStep(partial(self._compute, batch, replace(batch, scheduled=frozen)))

    def _compute(self, batch: Batch, seen: Batch) -> StepResult:
        if batch.step in self._broken_steps:
            self._sampled = {}
            raise RuntimeError("the device is gone")
        rows = []
        for item, frozen in zip(batch.scheduled, seen.scheduled, strict=True):
            missing = frozen.stop - frozen.request.num_tokens
            if missing > 0:
                token = self._sampled.get(item.request)
                if token is None:
                    assert item.request.finished, f"{item.request.request_id} goes on from a token never sampled"
                    continue
                assert missing == 1, "two tokens are not known"
                frozen.request.output.append(token)
            rows.append((item.request, frozen))
        result = self._model.execute(replace(seen, scheduled=tuple(frozen for _, frozen in rows)))
        self._sampled = {request: token for (request, _), token in zip(rows, result.tokens, strict=True)}
        live = {frozen.request: request for request, frozen in rows}
        return replace(
            result,
            tokens=[self._sampled.get(item.request) for item in batch.scheduled],
            prompt_logprobs={live[request]: found for request, found in result.prompt_logprobs.items()},
            continuations={live[request]: found for request, found in result.continuations.items()},
        )


def _frozen(request: Request) -> Request:
    """The request with the block table and the tokens of this moment."""
    frozen = copy(request)
    frozen.block_table = BlockTable(request.block_table.block_ids.copy())
    frozen.output = request.output.copy()
    return frozen


class _Checked:
    """The scheduler as the engine sees it: every plan is checked."""

    def __init__(self, engine: CheckedEngine) -> None:
        self._checked = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._checked.scheduler, name)

    def schedule(self, now: float) -> Batch:
        assert now == self._checked.now
        return self._checked.plan()


class OverlappedEngine(CheckedEngine):
    """Engine with overlap, checked by :class:`CheckedEngine`."""

    def __init__(self, config: SchedulerConfig, *, chaining: bool = False, broken_steps: Collection[int] = ()) -> None:
        ahead = config.replace(overlap=True)
        # A window lets go of blocks a step later.
        later = KVGroups(ahead).count_sequence_blocks(config.max_model_len) - KVGroups(config).count_sequence_blocks(
            config.max_model_len
        )
        super().__init__(ahead.replace(num_blocks=config.num_blocks + later))
        runner = LateModel(self.model, chaining=chaining, broken_steps=broken_steps)
        self._engine = Engine(cast(Scheduler, _Checked(self)), runner, clock=lambda: self.now)

    def step(self) -> Batch:
        self.now += 1
        self.outputs += self._engine.step()
        self.scheduler.check_integrity()
        return self.batches[-1]
