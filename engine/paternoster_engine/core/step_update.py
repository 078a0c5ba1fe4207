"""Results of a step applied to its requests: tokens that were sampled or accepted, branches, and ends."""

from collections.abc import Callable, Iterator, Sequence

from paternoster_engine.core.admission.lanes import RequestLane
from paternoster_engine.core.batch import Batch, ScheduledRequest, StepOutput, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.kv.kv_cache import KVCache
from paternoster_engine.core.request import Branches, FinishReason, Request, RequestStatus
from paternoster_engine.core.speculation import Speculation

Finish = Callable[[Request, FinishReason], None]


class StepUpdate:
    """Appends sampled tokens to requests and ends those that are complete."""

    def __init__(
        self,
        config: SchedulerConfig,
        lanes: Sequence[RequestLane],
        kv: KVCache,
        speculation: Speculation,
        finish: Finish,
    ) -> None:
        """``lanes``: in their order. ``finish``: ends a request and gives back what it holds."""
        self._max_model_len = config.max_model_len
        self._meters_output = config.uses_tenants
        self._lanes = lanes
        self._kv = kv
        self._speculation = speculation
        self._finish = finish

    def apply_result(self, batch: Batch, result: StepResult, now: float) -> list[StepOutput]:
        """Apply the result of a step; requests that ended since are skipped."""
        result.store_results()
        outputs: list[StepOutput] = []
        branched: dict[Branches | None, None] = {}
        for item, token in zip(batch.scheduled, result.tokens, strict=True):
            request = item.request
            if request.leader.finished:
                continue
            if request in result.corrupted:
                branched.pop(request.branches, None)
                outputs.append(self._end_corrupted(request.leader))
                continue
            # The plan of the next step may have taken its blocks meanwhile.
            if request.status is RequestStatus.RUNNING:
                self._kv.cache_full_blocks(request, item.known_stop)
            if not item.samples:
                continue
            if request.num_pending:
                request.num_pending -= 1
            if request.branches is not None:
                branched[request.branches] = None
                continue
            if token is None and request.is_unsatisfiable:
                self._finish(request, FinishReason.ERROR)
                outputs.append(StepOutput(request, None, FinishReason.ERROR))
                continue
            request.first_token = now if request.first_token is None else request.first_token
            request.last_token = now
            if request.spec.params.max_tokens == 0:
                self._finish(request, FinishReason.STOP)
                outputs.append(StepOutput(request, None, FinishReason.STOP))
                continue
            assert token is not None, f"request {request.request_id} was to be sampled and was not"
            self._append_tokens(item, token, result, now, outputs)
        return outputs + [
            output for branches in branched if branches for output in self._advance_branches(branches, now)
        ]

    def _end_corrupted(self, request: Request) -> StepOutput:
        """End the request with an error, and remove its blocks from the prefix cache, so that no other reuses them."""
        request.corrupted = True
        self._lanes[request.spec.lane].counters.corrupted_requests += 1
        for sequence in request.sequences:
            self._kv.uncache_blocks(sequence)
        self._finish(request, FinishReason.ERROR)
        return StepOutput(request, None, FinishReason.ERROR)

    def _append_tokens(
        self, item: ScheduledRequest, token: int, result: StepResult, now: float, outputs: list[StepOutput]
    ) -> None:
        """Append the tokens of ``item``, of which ``token`` is the first, up to the token that ends it."""
        request, reason = item.request, None
        tokens = result.accepted_tokens(item, token) if item.proposed else (token,)
        before = len(request.output)
        for each in tokens:
            request.output.append(each)
            reason = request.ends_with(each, self._max_model_len)
            outputs.append(StepOutput(request, each, reason))
            if reason is not None:
                break
        count = len(request.output) - before
        self._lanes[request.spec.lane].counters.generation_tokens += count
        if self._meters_output or request.spec.limits is not None:
            self._meter_output(request, count, now)
        if request.spec.params.logprobs is not None and request in result.logprobs:
            request.logprobs += result.logprobs[request][:count]
        if item.proposed:
            self._accept_proposed(item, count - 1)
        if reason is not None:
            self._finish(request, reason)

    def _accept_proposed(self, item: ScheduledRequest, accepted: int) -> None:
        """Count the first ``accepted`` proposed tokens as computed, and the others as never computed."""
        request = item.request
        self._speculation.record_accepted(item, accepted)
        if self._meters_output and accepted < len(item.proposed):
            self._lanes[request.spec.lane].queue.count_rejected(request, len(item.proposed) - accepted)
        if request.status is RequestStatus.RUNNING:
            # Also where nothing could be sampled after the last one accepted: that one is computed again.
            request.num_computed = request.num_tokens - 1
            request.max_computed = max(request.max_computed, request.num_computed)
            self._kv.cache_full_blocks(request, request.num_computed)

    def _advance_branches(self, branches: Branches, now: float) -> Iterator[StepOutput]:
        """Some sequences of a request were computed: when all are, they go on; the end is an output."""
        request, was_folded = branches.leader, branches.folded
        lane = self._lanes[request.spec.lane]
        count = branches.advance()
        if was_folded and not branches.folded:
            index = lane.running.index(request) + 1
            lane.running[index:index] = branches.sequences[1:]
            lane.slots.promised.discard(request)
        if count == 0:
            return
        request.first_token = now if request.first_token is None else request.first_token
        request.last_token = now
        lane.counters.generation_tokens += count
        if self._meters_output or request.spec.limits is not None:
            self._meter_output(request, count, now)
        if branches.ended:
            output, reason = branches.outcome
            self._finish(request, reason)
            request.output = list(output)
            yield StepOutput(request, None, reason)

    def _meter_output(self, request: Request, count: int, now: float) -> None:
        lane = self._lanes[request.spec.lane]
        lane.queue.count_sampled(request, count)
        lane.validation.quota.charge_output(request, count, now)
