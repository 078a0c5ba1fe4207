"""Why a request is refused before it joins the queue."""

import math


class AdmissionError(Exception):
    """A request that was refused; nothing was changed. ``reason`` is a metric label."""

    reason = "refused"


class PromptTooLong(AdmissionError):
    """Prompt and output together exceed the model's context."""

    reason = "prompt_too_long"

    def __init__(self, num_prompt: int, max_tokens: int, max_model_len: int) -> None:
        super().__init__(
            f"This model's maximum context length is {max_model_len} tokens. However, the request asks for "
            f"{num_prompt + max_tokens} tokens: {num_prompt} in the prompt and {max_tokens} of output."
        )


class NeverFits(AdmissionError):
    """At full length the request needs more KV blocks than there are."""

    reason = "never_fits"

    def __init__(self, blocks_needed: int, num_blocks: int, block_size: int) -> None:
        super().__init__(
            f"The request can grow to {blocks_needed} KV blocks of {block_size} tokens, but this engine has "
            f"{num_blocks}: shorten the prompt, or ask for less output or fewer sequences."
        )


class TooManySequences(AdmissionError):
    """A request needs more sequences at once than can ever run."""

    reason = "too_many_sequences"

    def __init__(self, width: int, max_num_seqs: int) -> None:
        super().__init__(
            f"The request needs {width} sequences at once, but this engine runs at most {max_num_seqs} sequences: "
            "ask for fewer with n or best_of."
        )


class QueueFull(AdmissionError):
    """The waiting queue is full; try again later or elsewhere."""

    reason = "queue_full"

    def __init__(self, num_waiting: int) -> None:
        super().__init__(
            f"The engine is busy: {num_waiting} requests are waiting, which is as many as it queues. "
            "Please try again later or on a different instance."
        )


class QueueTooSlow(AdmissionError):
    """A request would wait longer than it may; ``retry_after`` is the seconds until the queue is short enough."""

    reason = "queue_too_slow"

    def __init__(self, num_waiting: int, seconds: float, most_seconds: float) -> None:
        """``seconds``: that the request would wait, of ``most_seconds`` that it may."""
        super().__init__(
            f"The engine is busy: behind the {num_waiting} requests that are waiting this one would begin in "
            f"{seconds:.1f} s, and requests may wait for {most_seconds:.1f} s. Please try again later."
        )
        self.retry_after = max(1, math.ceil(seconds - most_seconds))


class TenantQueueFull(AdmissionError):
    """The tenant has its limit of waiting requests; other tenants' are accepted."""

    reason = "tenant_queue_full"

    def __init__(self, tenant: str, limit: int) -> None:
        super().__init__(
            f"Too many requests: {limit} requests of {_describe_tenant(tenant)} are waiting, which is as many as are "
            "queued for one tenant. Please try again later."
        )


class TenantRateExceeded(AdmissionError):
    """The tenant has used up its tokens; ``retry_after`` is the number of seconds until it has some again."""

    reason = "tenant_rate_exceeded"

    def __init__(self, tenant: str, rate: float, retry_after: int) -> None:
        super().__init__(
            f"Rate limit reached: {_describe_tenant(tenant)} may use {rate:g} tokens per second. "
            f"Please try again in {retry_after} s."
        )
        self.retry_after = retry_after


def _describe_tenant(tenant: str) -> str:
    return f"tenant {tenant!r}" if tenant else "all clients together, who need no keys,"
