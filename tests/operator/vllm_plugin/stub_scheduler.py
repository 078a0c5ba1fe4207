"""A scheduler with the attributes of vLLM's that the plugin reads, sets and wraps."""

from types import SimpleNamespace
from typing import Any


class StubRequest:
    def __init__(self, request_id: str, num_computed_tokens: int = 0) -> None:
        self.request_id = request_id
        self.num_computed_tokens = num_computed_tokens
        self.num_preemptions = 0


class StubScheduler:
    """Runs one token of each request a step, as far as the budget reaches."""

    def __init__(self, capacity: int = 8, budget: int = 16) -> None:
        self.max_num_running_reqs = self.max_num_active_reqs = capacity
        self.max_num_scheduled_tokens = budget
        self.max_model_len = 128
        self.block_size = 16
        self.running: list[StubRequest] = []
        self.waiting: list[StubRequest] = []
        self.skipped_waiting: list[StubRequest] = []
        self.kv_cache_manager = SimpleNamespace(
            block_pool=SimpleNamespace(num_gpu_blocks=11, get_num_free_blocks=lambda: 7)
        )
        self.found_in_cache = 0
        self.resumes_as_new = False
        """Whether the model runner is of version 2, for which preempted requests that run again are new ones."""

    def schedule(self) -> Any:
        resumed, new = [], []
        while self.waiting and len(self.running) < self.max_num_active_reqs:
            self.running.append(self.waiting.pop(0))
            if self.running[-1].num_preemptions:
                self.running[-1].num_computed_tokens = self.found_in_cache
                resumed.append(self.running[-1])
            else:
                new.append(self.running[-1])
        chosen = self.running[: self.max_num_scheduled_tokens]
        if self.resumes_as_new:
            new, resumed = new + resumed, []
        cached = SimpleNamespace(
            req_ids=[request.request_id for request in chosen if request not in new],
            num_computed_tokens=[request.num_computed_tokens for request in chosen if request not in new],
        )
        started = [
            SimpleNamespace(req_id=request.request_id, num_computed_tokens=request.num_computed_tokens)
            for request in chosen
            if request in new
        ]
        for request in chosen:
            request.num_computed_tokens += 1
        return SimpleNamespace(
            num_scheduled_tokens={request.request_id: 1 for request in chosen},
            total_num_scheduled_tokens=len(chosen),
            scheduled_cached_reqs=cached,
            scheduled_new_reqs=started,
            scheduled_spec_decode_tokens={},
        )

    def update_from_output(self, output: Any, result: str) -> str:
        return f"{result} of {output.total_num_scheduled_tokens}"

    def preempt_last(self) -> None:
        self._preempt_request(self.running.pop(), 0.0)

    def finish_first(self) -> None:
        self._free_request(self.running.pop(0))

    def _preempt_request(self, request: StubRequest, timestamp: float) -> None:
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.waiting.insert(0, request)

    def _free_request(self, request: StubRequest) -> str:
        return f"freed {request.request_id}"
