"""A model that is a hash of everything before: one wrong, missing or foreign token in the cache changes what it says.

Its KV cache is a dictionary of (block, offset) -> (group, position, token). Each step writes the chunk's tokens there
for each group of layers, then reads back through the block table what attention would, in a group with a window no more
than the window of each token, and compares it with the request.
"""

import zlib
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import chain, count
from typing import NamedTuple

from paternoster_contract.access.identity import Lane
from paternoster_engine.core.admission.lanes import RequestLane
from paternoster_engine.core.batch import Batch, ScheduledRequest, StepOutput, StepResult
from paternoster_engine.core.config import SchedulerConfig, TenantLimits
from paternoster_engine.core.request import Request, TokenLogprobs
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.runner.protocol import SynchronousRunner
from paternoster_engine.sampling.beam_search import BeamParams, BeamSearch, Hypothesis

VOCABULARY = 50


class Search(NamedTuple):
    """What a client asks of a beam search."""

    params: SamplingParams
    beam: BeamParams


Slots = dict[tuple[int, int], tuple[int, int, int]]
"""(block, offset) -> (group, position, token)."""


def next_token(history: Sequence[int]) -> int:
    """What follows ``history``, greedily."""
    return _hash(history) % VOCABULARY


def continuations(history: Sequence[int], count: int) -> list[tuple[int, float]]:
    """The ``count`` most likely tokens after ``history``, all of different log probabilities, and these."""
    number = _hash(history)
    fall = 0.01 + (number >> 8) % 9973 / 9973
    return [((number + 7 * rank) % VOCABULARY, -0.3 - fall * rank) for rank in range(min(count, VOCABULARY))]


def _hash(history: Sequence[int]) -> int:
    return zlib.crc32(repr(list(history)).encode())


def unbatched(prompt: list[int], max_tokens: int, max_model_len: int, ends: Collection[int] = ()) -> list[int]:
    """What the model says to ``prompt`` when nothing else runs; tokens of ``ends`` are the last."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < max_tokens and len(tokens) < max_model_len:
        tokens.append(next_token(tokens))
        if tokens[-1] in ends:
            break
    return tokens[len(prompt) :]


def searched(prompt: list[int], search_spec: Search) -> Sequence[Hypothesis]:
    """What a beam search finds when nothing else runs."""
    search = BeamSearch(search_spec.beam, search_spec.params, ())
    while not search.done:
        search.select_branches(
            [continuations([*prompt, *beam.tokens], search.num_continuations) for beam in search.live]
        )
    return search.finished


class FakeModel(SynchronousRunner):
    """A runner over a dictionary."""

    def __init__(self, block_size: int, windows: Sequence[int | None] = (None,)) -> None:
        self._block_size = block_size
        self._windows = windows
        self._cache: Slots = {}
        self._host: Slots = {}

    def execute(self, batch: Batch) -> StepResult:
        for block, host in batch.swap_out:
            self._copy(self._cache, block, self._host, host)
        for host, block in batch.swap_in:
            self._copy(self._host, host, self._cache, block)
        written = [block for _, block in batch.copies]
        assert len({*written, *(block for block, _ in batch.copies)}) == len(written) + len(
            {block for block, _ in batch.copies}
        ), "a block is copied to twice, or is both copied from and copied to"
        for source, block in batch.copies:
            self._copy(self._cache, source, self._cache, block)
        for item in batch.scheduled:
            tokens = item.tokens
            for group in range(len(self._windows)):
                slots = self._slots(item.request, group, item.start, item.stop)
                for slot, position, token in zip(slots, range(item.start, item.stop), tokens, strict=True):
                    self._cache[slot] = (group, position, token)
        for item in batch.scheduled:
            self._read(item)
        return StepResult(
            [self._sample(item.request, item.known_stop) if item.samples else None for item in batch.scheduled],
            further={
                item.request: [next_token([*known_tokens, *item.proposed[:count]]) for count in range(1, proposed + 1)]
                for item in batch.scheduled
                if (proposed := len(item.proposed)) and (known_tokens := item.request.slice_tokens(0, item.known_stop))
            },
            prompt_logprobs={item.request: self._prompt_logprobs(item) for item in batch.scheduled},
            continuations={
                item.request: continuations(
                    item.request.slice_tokens(0, item.stop), item.request.branch_selector.num_continuations
                )
                for item in batch.scheduled
                if item.samples and item.request.branch_selector is not None
            },
        )

    def _prompt_logprobs(self, item: ScheduledRequest) -> list[TokenLogprobs]:
        """Log probabilities of each prompt token after one of the chunk, once."""
        request = item.request
        if request.params.prompt_logprobs is None:
            return []
        num_scored = len(request.prompt_logprobs)
        end = min(item.stop, request.num_prompt - 1)
        assert not num_scored < item.start < end, f"{request.request_id} has none of token {num_scored + 1}"
        rows = range(max(item.start, num_scored), end)
        return [TokenLogprobs(request.prompt[position + 1], -1.0, 1, ()) for position in rows]

    def _sample(self, request: Request, stop: int) -> int:
        return next_token(request.slice_tokens(0, stop))

    def _read(self, item: ScheduledRequest) -> None:
        """All that the chunk's tokens see."""
        request = item.request
        for group, window in enumerate(self._windows):
            first = 0 if window is None else max(0, item.start - window + 1)
            seen = [self._cache.get(slot) for slot in self._slots(request, group, first, item.stop)]
            tokens = enumerate([*request.slice_tokens(first, item.known_stop), *item.proposed], start=first)
            expected = [(group, position, token) for position, token in tokens]
            assert seen == expected, f"{request.request_id} reads what it did not write"

    def _copy(self, source: Slots, block: int, target: Slots, other: int) -> None:
        """A whole block, so that nothing of what was there before is left."""
        for offset in range(self._block_size):
            target.pop((other, offset), None)
            if (block, offset) in source:
                target[other, offset] = source[block, offset]

    def _slots(self, request: Request, group: int, start: int, stop: int) -> list[tuple[int, int]]:
        """Where the tokens from ``start`` to before ``stop`` are."""
        size, blocks = self._block_size, request.block_table.block_ids[group :: len(self._windows)]
        used = blocks[start // size : -(-stop // size)]
        assert 0 not in used, "the null block was handed out, or a block is read or written that was let go"
        return [(blocks[position // size], position % size) for position in range(start, stop)]


class CheckedEngine:
    """A scheduler on the fake model, checked after every step."""

    def __init__(
        self, config: SchedulerConfig, live_cap: int | None = None, *, scheduler: Scheduler | None = None
    ) -> None:
        self.scheduler = Scheduler(config, live_cap) if scheduler is None else scheduler
        self.model = FakeModel(config.block_size, config.windows)
        self.now = 0.0
        self.outputs: list[StepOutput] = []
        self.batches: list[Batch] = []
        self._names = count()

    def add(
        self,
        prompt: list[int],
        max_tokens: int,
        *,
        ignore_eos: bool = True,
        priority: int = 0,
        tenant: str = "",
        limits: TenantLimits | None = None,
        cache_scope: bytes = b"",
        patience: float | None = None,
        prompt_logprobs: int | None = None,
        beam: BeamParams | None = None,
        stop_token_ids: tuple[int, ...] = (),
        prefix_donor: Request | None = None,
        lane: Lane = Lane.ONLINE,
    ) -> Request:
        """Queue a request; ``patience``: seconds until its deadline."""
        params = SamplingParams(
            max_tokens=max_tokens,
            temperature=0.0,
            ignore_eos=ignore_eos,
            prompt_logprobs=prompt_logprobs,
            stop_token_ids=stop_token_ids,
        )
        deadline = None if patience is None else self.now + patience
        request = Request(
            RequestSpec(
                f"r{next(self._names)}",
                prompt,
                params,
                arrival=self.now,
                priority=priority,
                lane=lane,
                tenant=tenant,
                limits=limits,
                cache_scope=cache_scope,
                deadline=deadline,
            ),
            prefix_donor=prefix_donor,
            branch_selector=None if beam is None else BeamSearch(beam, params, ()),
        )
        self.now += 0.001
        self.scheduler.add(request)
        return request

    def step(self) -> Batch:
        self.now += 1
        batch = self.plan()
        self.outputs += self.scheduler.update(batch, self.model.execute(batch), self.now)
        self.scheduler.check_integrity()
        return batch

    def plan(self) -> Batch:
        """What the scheduler makes of this moment, checked."""
        scheduler = self.scheduler
        cap, running, used_slots = scheduler.live_cap, set(self._running()), self._slots()
        batch = scheduler.schedule(self.now)
        self.batches.append(batch)
        assert batch.num_tokens <= scheduler.config.max_batched_tokens
        assert all(item.num_tokens >= 1 and item.known_stop <= item.request.num_expected for item in batch.scheduled)
        alone = len({request.leader for request in scheduler.running}) == 1
        assert self._slots() <= max(cap, used_slots) or alone, "admitted above the live cap"
        for lane in scheduler.lanes:
            self._check_admissions(lane, batch, [request for request in lane.running if request not in running])
        self._check_lanes(batch)
        self._check_deadlines(batch)
        self._check_sharing()
        self._check_writes(batch)
        scheduler.check_integrity()
        return batch

    def run(self, limit: int = 20_000) -> None:
        for _ in range(limit):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError(f"work is left after {limit} steps: {[r.status for r in self.scheduler.waiting]}")

    def _check_lanes(self, batch: Batch) -> None:
        """Requests of a lower lane stand behind all others, run in slots that these leave, and wait while one waits."""
        scheduler = self.scheduler
        lanes = [item.request.spec.lane for item in batch.scheduled]
        assert lanes == sorted(lanes)
        if Lane.BATCH in lanes:
            assert lanes.count(Lane.BATCH) <= scheduler.live_cap - self._slots()
        if scheduler.waiting:
            assert not any(request.first_scheduled == self.now for request in scheduler.lanes[Lane.BATCH].running)

    def _check_admissions(self, lane: RequestLane, batch: Batch, admitted: list[Request]) -> None:
        """No request is admitted in a step that preempted, but those more important than all that were preempted."""
        preempted = [request for request in batch.preempted if request.spec.lane is lane.lane]
        if not preempted or not admitted:
            return
        config = self.scheduler.config
        assert config.order != "fcfs", "admitted in a step that preempted"
        assert not set(preempted).intersection(admitted), "preempted and admitted at once"
        assert all(request.leader is request for request in preempted), "a beam was preempted alone"
        # The last one preempted the others; those before it only stood ahead of it.
        if config.order == "priority":
            assert all(admitted[-1].spec.priority < victim.spec.priority for victim in preempted)
        else:
            self._check_shares(lane.running, preempted, admitted[-1])

    def _check_shares(self, running: Sequence[Request], preempted: Sequence[Request], admitted: Request) -> None:
        """A request that made way was of a tenant that still holds as much as the new one, in slots or in blocks."""
        slots, blocks = Counter[str](), Counter[str]()
        for request in running:
            slots[request.spec.tenant] += request.slots
            table = request.block_table.block_ids
            blocks[request.spec.tenant] += len(table) - table.count(0)
        # A group makes way whole for a tenant that runs nothing else.
        alone = any(victim.width > 1 for victim in preempted) and [
            request for request in running if request.spec.tenant == admitted.spec.tenant
        ] == [admitted]
        for victim in preempted:
            assert victim.spec.tenant != admitted.spec.tenant
            weights = [self.scheduler.config.tenant_weights.get(each.spec.tenant, 1.0) for each in (victim, admitted)]
            shares = [
                [held[victim.spec.tenant] / weights[0], held[admitted.spec.tenant] / weights[1]]
                for held in (slots, blocks)
            ]
            assert alone or victim.spec.limits or any(left >= admitted_share for left, admitted_share in shares)

    def _check_deadlines(self, batch: Batch) -> None:
        for item in batch.scheduled:
            request = item.request
            late = request.spec.deadline is not None and request.spec.deadline <= self.now
            decode = item.known_stop - item.start == 1 and item.start >= request.num_prompt
            assert not late or decode, f"{request.request_id} is past its deadline and takes a prefill"

    def _check_sharing(self) -> None:
        """A block in two tables is at the same place in both, and of the same tokens as far as both have computed it.

        Only beams of one search share a block that is not full, until one of them writes to it.
        """
        size, groups = self.scheduler.config.block_size, len(self.scheduler.config.windows)
        content: dict[int, tuple[int, Request, list[int]]] = {}
        shared = {block for block, count in self._holders().items() if count > 1}
        for request in self._running() if shared else ():
            for entry, block in enumerate(request.block_table.block_ids):
                index = entry // groups
                if block in shared:
                    history = request.slice_tokens(0, min(request.num_computed, (index + 1) * size))
                    group, first, other = content.setdefault(block, (entry % groups, request, history))
                    assert group == entry % groups, "a block is shared by two groups of layers"
                    both = min(len(history), len(other))
                    assert other[:both] == history[:both], "a block is shared by different beginnings"
                    full = request.num_tokens >= (index + 1) * size
                    assert full or request.leader is first.leader, "a block that is not full is shared"

    def _check_writes(self, batch: Batch) -> None:
        """What is computed, and what is copied before, goes to blocks of one holder each."""
        size, groups = self.scheduler.config.block_size, len(self.scheduler.config.windows)
        holders = self._holders()
        for item in batch.scheduled:
            first, last = item.start // size, (item.stop - 1) // size
            written = item.request.block_table.block_ids[first * groups : (last + 1) * groups]
            assert all(holders[block] == 1 for block in written), f"{item.request.request_id} writes to a shared block"
        assert all(holders[block] == 1 for _, block in batch.copies), "a copy is made for nobody, or for several"

    def _holders(self) -> Counter[int]:
        holders = Counter(chain.from_iterable(request.block_table.block_ids for request in self._running()))
        del holders[0]
        return holders

    def _running(self) -> list[Request]:
        return [request for lane in self.scheduler.lanes for request in lane.running]

    def _slots(self) -> int:
        return sum(request.slots for request in self.scheduler.running)
