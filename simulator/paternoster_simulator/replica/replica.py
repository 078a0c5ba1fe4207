"""One engine in virtual time: the real scheduler, stepped by a cost model instead of a model."""

from collections.abc import Sequence
from typing import cast

from paternoster_contract.stats import EngineState, EngineStats
from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.kv.block_pool import BlockPool
from paternoster_engine.core.request import Request
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.core.step_work import StepWork
from paternoster_simulator.cost import TICKS_PER_SECOND, StepCost, to_seconds
from paternoster_simulator.replica.block_count import BlockCount
from paternoster_simulator.replica.fast_forward import FastForward, can_fast_forward


class SimulatedReplica:
    """The engine process of one pod. Times are picoseconds of virtual time and never go back.

    A step that begins takes everything in that has arrived by then; steps follow each other without a gap while there
    is work. With ``fast_forward`` off every step is made for itself, on the real block pool: slow, and the reference.
    """

    def __init__(
        self,
        name: str,
        config: SchedulerConfig,
        cost: StepCost,
        *,
        instance: str = "",
        started_at: int = 0,
        fast_forward: bool = True,
    ) -> None:
        self.name = name
        self._fast_forward = fast_forward and can_fast_forward(config)
        counts = self._fast_forward and not config.prefix_cache
        pool = cast(BlockPool, BlockCount(config.num_blocks)) if counts else None
        self.scheduler = Scheduler(config, pool=pool, ticks_per_second=TICKS_PER_SECOND)
        self.in_flight = 0
        """Requests that the gateway has sent here and not yet answered in full."""
        self.prompted: list[Request] = []
        """Requests that have their first token since the last :meth:`advance`."""
        self.end: int | None = None
        """When the step, or the run of steps, under way ends; None while idle. Then :meth:`advance` is due."""
        self._cost = cost
        self._instance = instance or name
        self._started_at = started_at
        self.hands_over = False
        """Whether it begins no step any more: :meth:`take_requests` is due."""
        self._restored: dict[str, int] = {}
        """Tokens that requests had when they came from another engine, by id."""
        self._idle_since: int | None = None
        """When its last request ended; None where it had none yet."""
        self._batch: Batch | None = None
        """The real step under way; None while idle or in a run."""
        self._begin = 0
        self._steps = 0
        """Pure decode steps of the run under way."""
        self._counted = 0
        """Number of those that are in the sums of steps."""
        self._ahead = FastForward(self.scheduler)
        self._first_token_time = self._inter_token_time = self._first_tokens = self._inter_tokens = 0
        """Sums over finished requests, as the counters of ``/stats`` have them."""

    def add(self, request: Request, now: int) -> None:
        """Queue a request; raises :class:`paternoster_engine.core.errors.AdmissionError`, with nothing changed."""
        self.scheduler.add(request)
        if request.output:
            self._restored[request.request_id] = len(request.output)
        if self.end is None:
            self._start(now)
        elif self._steps > 1:
            self._look_up(now)

    def advance(self, now: int) -> Sequence[Request]:
        """The work under way has ended: take its tokens in and go on. Returns the requests that are finished."""
        assert now == self.end, f"{self.name} is to advance at {self.end} and not at {now}"
        if self._batch is not None:
            self.scheduler.counters.steps.add(StepWork.from_batch(self._batch), now - self._begin)
            done = self._end_step(self._batch, now)
            self.prompted = [item.request for item in self._batch.scheduled if item.request.first_token == now]
        else:
            self.prompted = []
            self._count_steps(self._steps)
            self._ahead.advance(self._steps, now)
            self._steps = self._counted = 0
            done = self._ahead.finish()
        for request in done:
            self._count_tokens(request)
        self._start(now)
        return done

    def begin_hand_over(self, now: int) -> None:
        """Begin no step after the one under way; a replica without work does nothing."""
        if self.end is None:
            return
        self.hands_over = True
        if self._steps > 1:
            self._cut_run(now)

    def take_requests(self, now: int) -> list[Request]:
        """All unfinished requests, which it has no longer; between two steps."""
        assert self.end is None, f"{self.name} is in a step"
        self.hands_over = False
        requests = self.list_unfinished()
        for request in requests:
            self._count_tokens(request)
            self.scheduler.abort(request.request_id)
        self._ahead, self._idle_since = FastForward(self.scheduler), now
        return requests

    def set_cap(self, cap: int, now: int) -> None:
        """Move the live cap; the next step that begins uses it."""
        cap = min(cap, self.scheduler.config.max_num_seqs)
        if cap == self.scheduler.live_cap:
            return
        self.scheduler.live_cap = cap
        if self._steps > 1:
            self._look_up(now)

    def set_token_budget(self, tokens: int) -> None:
        """Move the token budget; the next step that begins uses it."""
        # No run under way ends for it: each of its sequences has its token, whatever the budget.
        self.scheduler.token_budget = min(tokens, self.scheduler.config.max_batched_tokens)

    def observe(self, now: int) -> None:
        """Bring the scheduler's state to this moment; a run under way goes on."""
        if not self._steps:
            # A real step is in the scheduler's state already, and before one everything was written.
            return
        ahead, begun = self._ahead, self._count_begun(now)
        count, context = len(self.scheduler.running), ahead.context
        last = self._begin + self._cost.decode(count, context, begun - 1)
        self._count_steps(begun - 1)
        ahead.write(ahead.steps + begun, ahead.steps + begun - 1, last)

    def build_stats(self, now: int, *, draining: bool = False) -> EngineStats:
        """What the engine would answer to ``GET /stats`` now."""
        self.observe(now)
        first, between = self._first_tokens, self._inter_tokens
        first_time, between_time = self._first_token_time, self._inter_token_time
        for request in self.list_unfinished():
            if request.first_token is not None and request.last_token is not None:
                first += 1
                first_time += round(request.first_token - request.spec.arrival)
                between += self._count_gaps(request)
                between_time += round(request.last_token - request.first_token)
        return EngineStats(
            instance=self._instance,
            model="simulated",
            state=EngineState.DRAINING if draining else EngineState.READY,
            started_at=to_seconds(self._started_at),
            time=to_seconds(now),
            last_tick_age_seconds=0.0,
            idle_seconds=self._idle_seconds(now),
            first_token_seconds_total=to_seconds(first_time),
            first_token_count_total=first,
            inter_token_seconds_total=to_seconds(between_time),
            inter_token_count_total=between,
            **self.scheduler.build_stats(ticks_per_second=TICKS_PER_SECOND),
        )

    def _idle_seconds(self, now: int) -> float | None:
        if self.scheduler.has_work:
            return 0.0
        return None if self._idle_since is None else to_seconds(now - self._idle_since)

    def list_unfinished(self) -> list[Request]:
        """Requests that run or wait."""
        return [*self.scheduler.running, *self.scheduler.waiting]

    def _count_tokens(self, request: Request) -> None:
        if request.first_token is None or request.last_token is None:
            self._restored.pop(request.request_id, None)
            return
        self._first_tokens += 1
        self._first_token_time += round(request.first_token - request.spec.arrival)
        self._inter_tokens += self._count_gaps(request)
        self._restored.pop(request.request_id, None)
        self._inter_token_time += round(request.last_token - request.first_token)

    def _start(self, now: int) -> None:
        """Begin the next step, or a run of them, if there is work."""
        scheduler = self.scheduler
        self._batch = None
        if self.hands_over:
            if self._fast_forward:
                self._ahead.settle_steps()
            self.end = None
            return
        steps = self._ahead.plan_steps() if self._fast_forward else 0
        if steps > 0:
            self._begin, self._steps = now, steps
            self.end = now + self._cost.decode(len(scheduler.running), self._ahead.context, steps)
            return
        if self._fast_forward:
            self._ahead.settle_steps()
        batch = scheduler.schedule(now)
        if not batch:
            assert not scheduler.has_work, f"{self.name} has work and schedules nothing"
            self.end, self._idle_since = None, now
            return
        if self._fast_forward:
            self._ahead.on_scheduled(batch)
        self._batch, self._begin = batch, now
        self.end = now + self._cost.step(batch)

    def _end_step(self, batch: Batch, now: int) -> list[Request]:
        if self._fast_forward:
            return self._ahead.update(batch, now)
        outputs = self.scheduler.update(batch, StepResult([item.request.seed for item in batch.scheduled]), now)
        return [output.request for output in outputs if output.finish_reason is not None]

    def _count_steps(self, ended: int) -> None:
        """Add the steps of the run under way up to ``ended`` to the sums, before the run is written."""
        count, done = len(self.scheduler.running), self._counted
        context = self._ahead.context + count * done
        self._cost.add_decodes(self.scheduler.counters.steps, count, context, ended - done)
        self._counted = ended

    def _look_up(self, now: int) -> None:
        """Something has changed outside: let the run end with the step that is under way, if it matters to it."""
        waiting = self.scheduler.waiting
        if not waiting or self._ahead.is_blocked(waiting[0]):
            return
        self._cut_run(now)

    def _cut_run(self, now: int) -> None:
        """Let the run end with the step that is under way."""
        self._steps = self._count_begun(now)
        self.end = self._begin + self._cost.decode(len(self.scheduler.running), self._ahead.context, self._steps)

    def _count_begun(self, now: int) -> int:
        """Steps of the run under way that have begun."""
        begun = self._cost.count_started(len(self.scheduler.running), self._ahead.context, now - self._begin)
        return min(begun, self._steps)

    def _count_gaps(self, request: Request) -> int:
        """Times between two tokens that it got here; a request for none has none."""
        return max(len(request.output) - self._restored.get(request.request_id, 0) - 1, 0)
