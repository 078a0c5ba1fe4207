"""Many pure decode steps of a scheduler at once, with the outcome that one by one would have had.

While nothing can be admitted, everything runs with one token a step, the budget covers all and growth fits into the
pool, a step changes each running request in the same way. Such steps are counted here and written into the requests
only when somebody reads them: at a real step, at an observation from outside, and at the end of a request.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.scheduler import Scheduler

_SIZES = {
    "max_num_seqs", "max_batched_tokens", "max_model_len", "block_size", "num_blocks", "watermark_blocks",
    "max_queued_requests", "prefix_cache",
}  # fmt: skip


def can_fast_forward(config: SchedulerConfig) -> bool:
    """Whether the scheduler is the plain one: every setting that is not a size has its default."""
    return all(
        getattr(config, name) == field.get_default(call_default_factory=True)
        for name, field in SchedulerConfig.model_fields.items()
        if name not in _SIZES
    )


class FastForward:
    """Decode steps done and not yet written into the requests of one scheduler.

    Steps are numbered through the scheduler's life, real ones included. ``steps`` is how many have ended.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.steps = 0
        self.context = 0
        """KV tokens that the next step reads, when it is a pure decode."""
        self.ended_at = 0
        """When the last of ``steps`` ended, in picoseconds."""
        self._scheduler = scheduler
        self._computed = self._sampled = 0
        self._counted_computed = self._counted_sampled = 0
        self._ends: dict[Request, int] = {}
        """Requests that decode, and the step in which each samples its last token."""
        self._queue: list[tuple[int, int, Request]] = []
        self._serial = 0

    def plan_steps(self) -> int:
        """Pure decode steps that can follow now, up to and with the first that ends a request.

        0 when the next step has to be scheduled.
        """
        scheduler = self._scheduler
        count = len(scheduler.running)
        if count == 0 or count != len(self._ends) or count > scheduler.config.max_batched_tokens:
            return 0
        if scheduler.waiting and not self.is_blocked(scheduler.waiting[0]):
            return 0
        return self._count_fitting(self._next_end() - self.steps)

    def is_blocked(self, head: Request) -> bool:
        """Whether the first of the queue cannot be admitted while what runs goes on; False where it is not sure."""
        scheduler = self._scheduler
        if len(scheduler.running) >= scheduler.live_cap:
            return True
        if scheduler.config.prefix_cache or not scheduler.running:
            return False
        # Steps not written yet hold blocks that still look free, so this errs to the safe side.
        needed = scheduler.kv.groups.count_known_blocks(head) + scheduler.config.watermark_blocks
        return needed > scheduler.pool.num_available

    def settle_steps(self) -> None:
        """Between two steps: write everything."""
        self.write(self.steps, self.steps, self.ended_at)

    def write(self, computed: int, sampled: int, last_token: int) -> None:
        """Bring requests, pool and counters to the moment when ``begun`` steps have begun and ``ended`` have ended.

        ``last_token`` is when the last of the latter ended, in picoseconds.
        """
        self._count(computed, sampled)
        if computed == self._computed and sampled == self._sampled:
            return
        self._give_steps(self._ends.items(), computed, sampled, last_token)
        self._computed, self._sampled = computed, sampled

    def finish(self) -> list[Request]:
        """End the requests whose last token came with the step that has just ended, in the order they run in."""
        queue, steps = self._queue, self.steps
        if not queue or queue[0][0] > steps:
            return []
        if self._scheduler.config.prefix_cache:
            # What was evicted depends on the order of taking and giving back.
            self.settle_steps()
        self._count(steps, steps)
        done = []
        while queue and queue[0][0] <= steps:
            end, _, request = heappop(queue)
            if self._ends.get(request) == end:
                done.append(request)
        if len(done) > 1:
            place = {request: i for i, request in enumerate(self._scheduler.running)}
            done.sort(key=place.__getitem__)
        for request in done:
            self._give_steps([(request, self._ends.pop(request))], steps, steps, self.ended_at)
            self.context -= request.num_tokens
            self._scheduler.abort(request.request_id, FinishReason.LENGTH)
        return done

    def on_scheduled(self, batch: Batch) -> None:
        """A real step has been made: what it computes is in the requests already."""
        for request in batch.preempted:
            self._ends.pop(request, None)
        self._computed += 1

    def update(self, batch: Batch, now: int) -> list[Request]:
        """The real step has ended: let the scheduler take in its tokens, but for requests that just go on decoding.

        Returns the requests that are finished.
        """
        self.steps += 1
        self.ended_at = now
        ends, steps = self._ends, self.steps
        eventful = [item for item in batch.scheduled if ends.get(item.request, 0) <= steps]
        going_on = len(batch.scheduled) - len(eventful)
        # One token computed and one sampled for each that goes on.
        starts = sum([item.start for item in batch.scheduled]) - sum([item.start for item in eventful])
        context = starts + 2 * going_on
        self._scheduler.counters.generation_tokens += going_on
        self._counted_computed = self._counted_sampled = steps
        # A token of its own for each request, so that the prefix cache never mistakes one's output for another's.
        sampled = StepResult([item.request.seed for item in eventful])
        outputs = self._scheduler.update(Batch(batch.step, tuple(eventful)), sampled, now)
        done = []
        for output in outputs:
            request = output.request
            if output.finish_reason is not None:
                done.append(request)
                ends.pop(request, None)
            else:
                context += request.num_tokens
                going_on += 1
                self._expect_end(request, steps)
        self.context = context
        if going_on != len(ends):
            self._put_off(batch)
        return done

    def advance(self, steps: int, now: int) -> None:
        """``steps`` pure decode steps have ended, the last of them now."""
        self.steps += steps
        self.context += steps * len(self._ends)
        self.ended_at = now

    def _put_off(self, batch: Batch) -> None:
        """Requests that decode and were passed over, for want of budget, end a step later."""
        for request in self._ends.keys() - {item.request for item in batch.scheduled}:
            self._push_end(request, self._ends[request] + 1)
            self.context += request.num_tokens

    def _expect_end(self, request: Request, steps: int) -> None:
        self._push_end(request, steps + request.params.max_tokens - len(request.output))

    def _push_end(self, request: Request, end: int) -> None:
        self._ends[request] = end
        self._serial += 1
        heappush(self._queue, (end, self._serial, request))

    def _next_end(self) -> int:
        queue = self._queue
        while self._ends.get(queue[0][2]) != queue[0][0]:
            heappop(queue)
        if len(queue) > 4 * len(self._ends) + 16:
            self._queue = queue = [entry for entry in queue if self._ends.get(entry[2]) == entry[0]]
            heapify(queue)
        return queue[0][0]

    def _count_fitting(self, steps: int) -> int:
        """The most steps, up to ``steps``, whose blocks are there without a preemption."""
        scheduler = self._scheduler
        size, count = scheduler.config.block_size, len(scheduler.running)
        unwritten = self.steps - self._computed
        if count * ((unwritten + steps) // size + 1) <= scheduler.pool.num_available:
            return steps
        self.settle_steps()
        available = scheduler.pool.num_available
        if count * (steps // size + 1) <= available:
            return steps
        # In each round of ``size`` steps every request takes one block, at the step where its last one is full.
        rounds, left = divmod(available, count)
        offsets = sorted(-request.num_computed % size for request in scheduler.running)
        fits = rounds * size + offsets[left]
        return min(steps, fits)

    def _count(self, computed: int, sampled: int) -> None:
        counters, count = self._scheduler.counters, len(self._scheduler.running)
        counters.computed_tokens += count * (computed - self._counted_computed)
        counters.generation_tokens += count * (sampled - self._counted_sampled)
        self._counted_computed, self._counted_sampled = computed, sampled

    def _give_steps(self, ends: Iterable[tuple[Request, int]], computed: int, sampled: int, last_token: int) -> None:
        kv = self._scheduler.kv
        pool, size, caches_prefixes, ahead = kv.pool, kv.block_size, kv.prefix_cache, computed - sampled - 1
        for request, end in ends:
            output, blocks = request.output, request.block_table.block_ids
            num_known = request.params.max_tokens - end + sampled
            request.num_computed = request.max_computed = count = len(request.prompt) + num_known + ahead
            held, new = len(blocks), num_known - len(output)
            if count > held * size:
                blocks += pool.allocate(-(-count // size) - held)
                request.block_table.num_writable = len(blocks) * size
            if new > 0:
                output += [request.seed] * new
                request.last_token = last_token
                if caches_prefixes:
                    kv.cache_full_blocks(request, request.num_tokens - 1)
