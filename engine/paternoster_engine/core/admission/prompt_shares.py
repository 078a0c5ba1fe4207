"""Which prompts the tokens of a step go to when they are too few for all: short ones do not wait for long ones."""

from collections.abc import Iterable, Sequence

from paternoster_engine.core.request import Request
from paternoster_engine.core.waiting.waiting_queue import WaitingQueue

ServiceOrder = tuple[float, float]
"""(precedence, due): the lowest is served first."""


class PromptShares:
    """Serves prompts by when they are due, in virtual time: the prompt tokens that were computed so far.

    A prompt is due at its admission plus its length, as if nothing else came after it. The earliest due goes first
    (earliest deadline first, with the deadlines of Zhang's virtual clocks, SIGCOMM '90). So a short prompt passes a
    longer one that runs, and one that is as long as the rest of it does not. All that passes a prompt is due before it
    and therefore no longer than the prompt is itself: it ends at most twice as late, however many short ones come.

    What its tenant was served beyond that of the other prompt comes on top of its length, where the queue counts that.
    """

    def __init__(self, queue: WaitingQueue) -> None:
        self.clock = 0
        """Prompt tokens given out so far."""
        self._queue = queue

    def service_order(self, request: Request) -> ServiceOrder:
        """Order of service of a prompt that runs."""
        return self._queue.prompt_precedence(request), request.due

    def sort_prompts(self, prompts: Iterable[Request]) -> list[Request]:
        """Prompts that run, the first to be served first; equals as they come."""
        return sorted(prompts, key=self.service_order)

    def due_time(self, num_uncomputed: int, ahead: int = 0) -> float:
        """Return when a prompt that is admitted now is due; ``ahead``: tokens that are computed before its own."""
        return self.clock + num_uncomputed + ahead

    def set_due_times(self, requests: Iterable[Request]) -> None:
        """Set when the prompts of one call are due, one after another, where they are computed whole.

        A call of many is due later than one of few that comes after it, as a long prompt is later than a short one.
        """
        ahead = 0
        for request in requests:
            request.due = self.due_time(request.num_prompt, ahead)
            ahead += request.num_prompt

    def is_served_before(self, request: Request, prompt: Request) -> bool:
        """Whether a waiting request with its present ``due`` is served before a prompt that runs."""
        precedence, due = self.service_order(request)
        return (precedence, due + self._queue.service_lead(request, prompt)) < self.service_order(prompt)

    def count_service(self, request: Request, num_tokens: int, stop: int) -> None:
        """``num_tokens`` of the request's tokens are computed in this step, up to ``stop``."""
        self.clock += num_tokens
        self._queue.count_computed(request, stop)


def find_cut_short(prompts: Sequence[Request], num_tokens: int) -> Request | None:
    """The first of ``prompts`` that does not get all of its tokens when they share ``num_tokens`` in this order."""
    for request in prompts:
        num_tokens -= request.num_expected - request.num_computed
        if num_tokens < 0:
            return request
    return None
