"""What is asked of a request before it may wait."""

from collections.abc import Sequence

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.errors import NeverFits, PromptTooLong, QueueFull, TooManyBeams
from paternoster_engine.core.kv_cache import most_blocks
from paternoster_engine.core.quota import TenantQuota
from paternoster_engine.core.request import Request


class Gate:
    """Refuses what can never be served and what there is no room for now."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self.quota = TenantQuota(config)

    def admit(self, requests: Sequence[Request], waiting: Sequence[Request]) -> None:
        """All of one call or none of them, none charged then.

        Raises :class:`AdmissionError`, and ``ValueError`` for a request that no caller should make.
        """
        for ahead, request in enumerate(requests):
            self._check(request, [*waiting, *requests[:ahead]] if ahead else waiting)
        for request in requests:
            self.quota.charge(request, request.num_prompt, request.arrival)

    def _check(self, request: Request, waiting: Sequence[Request]) -> None:
        config = self._config
        if request.num_prompt == 0 or request.params.max_tokens < 1:
            raise ValueError("a request needs at least one prompt token and one output token")
        if request.max_total_tokens > config.max_model_len:
            raise PromptTooLong(request.num_prompt, request.params.max_tokens, config.max_model_len)
        # The last token sampled is never computed.
        blocks = most_blocks(request, request.max_total_tokens - 1, config.block_size)
        if blocks > config.num_blocks:
            raise NeverFits(blocks, config.num_blocks, config.block_size)
        if request.width > config.max_num_seqs:
            raise TooManyBeams(request.width, config.max_num_seqs)
        if len(waiting) >= config.max_queued_requests:
            raise QueueFull(len(waiting))
        self.quota.check(request, waiting)
