"""Which requests may join the queue: those that can ever be served, and that a tenant has quota for."""

from collections.abc import Sequence

from paternoster_contract.queueing.queue_wait import QueuePace
from paternoster_engine.core.admission.tenant_quota import TenantQuota
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.errors import NeverFits, PromptTooLong, QueueFull, QueueTooSlow, TooManySequences
from paternoster_engine.core.kv.kv_groups import KVGroups
from paternoster_engine.core.request import Request, RequestStatus
from paternoster_engine.core.waiting.waiting_queue import WaitingQueue


class RequestValidation:
    """Refuses what can never be served and what there is no room for now."""

    def __init__(self, config: SchedulerConfig, queue: WaitingQueue) -> None:
        """``queue``: the scheduler's own."""
        self._config = config
        self._queue = queue
        self._groups = KVGroups(config)
        self.quota = TenantQuota(config)

    def check_call(
        self, requests: Sequence[Request], following: Sequence[Request] = (), pace: QueuePace | None = None
    ) -> None:
        """All of one call or none of them, whose tokens are reserved then, with those of the ``following`` ones.

        ``pace`` bounds what they may wait.

        Raises :class:`AdmissionError`, and ``ValueError`` for a request that no caller should make.
        """
        for ahead, request in enumerate(requests):
            self.check_size(request)
            if request.status is not RequestStatus.PREEMPTED:
                self._check_room(request, ahead)
        # Requests that begin as preempted ones were admitted, and their prompts charged, by the engine before this one.
        new = [request for request in requests if request.status is not RequestStatus.PREEMPTED]
        if pace is not None and new and self._queue.count_waiting():
            # By the first of a call: a large one that meets a short queue would be refused for ever.
            self._check_wait(new[0], pace)
        for request in requests:
            self.quota.reserve_tokens(request, goes_on=request.status is RequestStatus.PREEMPTED)
        for request in following:
            self.quota.reserve_tokens(request, goes_on=False)

    def check_size(self, request: Request) -> None:
        """Refuse what can never be served, whatever else there is: from any thread."""
        config = self._config
        if request.num_prompt == 0 or request.params.max_tokens < 0:
            raise ValueError("a request needs at least one prompt token, and no negative number of output tokens")
        if request.params.max_tokens > 0 and config.whole_prompts:
            raise ValueError("where prompts are computed in one step each there is nothing after them")
        if request.max_total_tokens > config.max_model_len:
            raise PromptTooLong(request.num_prompt, request.params.max_tokens, config.max_model_len)
        blocks = self._groups.count_required_blocks(request)
        if blocks > config.num_blocks:
            raise NeverFits(blocks, config.num_blocks, config.block_size)
        if request.width > config.max_num_seqs:
            raise TooManySequences(request.width, config.max_num_seqs)

    def _check_room(self, request: Request, ahead: int) -> None:
        """``ahead``: requests of the same call before this one."""
        total, places = self._queue.count_waiting() + ahead, self._config.max_queued_requests
        if total >= places and not self._has_tenant_queue_share(request, ahead, places):
            raise QueueFull(total)
        self.quota.check_request(request, self._queue.count_waiting(request.spec.tenant) + ahead)

    def _check_wait(self, request: Request, pace: QueuePace) -> None:
        waiting = self._queue.count_waiting()
        seconds = (waiting + 1) * pace.seconds_between
        places = int(pace.most_seconds / pace.seconds_between) if pace.seconds_between else waiting + 1
        if seconds > pace.most_seconds and not self._has_tenant_queue_share(request, 0, places):
            raise QueueTooSlow(waiting, seconds, pace.most_seconds)

    def _has_tenant_queue_share(self, request: Request, ahead: int, places: int) -> bool:
        """Whether the request's tenant has less than an equal part of the queue's ``places``, which others have filled.

        That part comes on top: with ``n`` tenants there are never more than 1 + 1/2 + ... + 1/n times as many as one
        may queue. Requests without an identity are all of one tenant.
        """
        if self._config.order != "fair-share" and request.spec.limits is None:
            return False
        own = self._queue.count_waiting(request.spec.tenant)
        others = self._queue.count_tenants() - (own > 0)
        return own + ahead < places // (others + 1)
