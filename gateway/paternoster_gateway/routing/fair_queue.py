"""In which order the waiting requests of one fleet are sent, whatever replica serves them."""

from bisect import insort_right
from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace

from paternoster_contract.queueing.queue_wait import QueueWait
from paternoster_contract.queueing.service_counters import OUTPUT_TOKEN_COST, PROMPT_TOKEN_COST, ServiceCounters
from paternoster_gateway.routing.decisions import RoutedRequest


class FairQueue:
    """Lower ``priority`` first, in it the sender that was served least, and of a sender the first to come.

    Of senders that were served alike the one with the fewest attempts is first: one that comes has the counter of the
    least served, and would else lose the next place to the flood that it came beside.

    A sender is charged its prompts as they are sent, and the tokens of answers as they come, as the engine charges its
    tenants.
    """

    def __init__(self) -> None:
        self.wait = QueueWait()
        """How fast requests leave the queue for a replica."""
        self._classes: dict[int, dict[str, list[RoutedRequest]]] = {}
        """Requests by priority and sender, none of them empty."""
        self._waiting: Counter[str] = Counter()
        """Number of waiting requests by sender, none of them 0."""
        self._num_waiting = 0
        self._attempts: Counter[str] = Counter()
        """Attempts that have not ended, by sender, none of them 0."""
        self._num_attempts = 0
        self._present: Counter[str] = Counter()
        """Waiting requests and attempts by sender, none of them 0."""
        self._service = ServiceCounters()

    def __len__(self) -> int:
        return self._num_waiting

    def __contains__(self, request: RoutedRequest) -> bool:
        return request in self._classes.get(request.turn.priority, {}).get(request.sender, ())

    def __iter__(self) -> Iterator[RoutedRequest]:
        """In order; what is charged meanwhile counts for those that come after."""
        for priority in sorted(self._classes):
            yield from self._of_class(self._classes[priority])

    def count_waiting(self, sender: str) -> int:
        """Waiting requests of ``sender``."""
        return self._waiting[sender]

    def count_senders(self) -> int:
        """Senders with a waiting request."""
        return len(self._waiting)

    def may_exceed_bound(self, request: RoutedRequest) -> bool:
        """Whether ``request`` may be sent although its replica has as many as it may get.

        Its sender has less than an equal part of the attempts, and no request of a more urgent class waits, nor an
        earlier one of its own.
        """
        sender, priority = request.sender, request.turn.priority
        senders = len(self._present) + (sender not in self._present)
        if self._attempts[sender] * senders >= self._num_attempts or any(each < priority for each in self._classes):
            return False
        own = self._classes.get(priority, {}).get(sender)
        return own is None or own[0].arrival >= request.arrival

    def add(self, request: RoutedRequest, now: float) -> None:
        """Queue ``request``, which does not wait yet."""
        if not self._waiting:
            self.wait.start_queue(now)
        self._begin_waiting(request.sender)
        queue = self._classes.setdefault(request.turn.priority, {}).setdefault(request.sender, [])
        insort_right(queue, request, key=_get_arrival)
        self._waiting[request.sender] += 1
        self._num_waiting += 1
        self._present[request.sender] += 1

    def remove(self, request: RoutedRequest) -> None:
        """``request``, which waits, waits no longer."""
        senders = self._classes[request.turn.priority]
        senders[request.sender].remove(request)
        if not senders[request.sender]:
            del senders[request.sender]
            if not senders:
                del self._classes[request.turn.priority]
        _count_down(self._waiting, request.sender)
        self._num_waiting -= 1
        _count_down(self._present, request.sender)
        if request.sender not in self._waiting:
            self._service.end_waiting(request.sender)

    def begin_attempt(self, request: RoutedRequest, tokens: float) -> None:
        """A replica gets ``request``, or a place is reserved for it; ``tokens``: of its prompt, charged once."""
        if request.charged_prompt is None:
            if request.sender not in self._waiting:
                self._begin_waiting(request.sender)
                self._service.end_waiting(request.sender)
            request.charged_prompt = 0.0
            self.correct_prompt(request, tokens)
        if request.sender not in self._attempts:
            self._service.begin_running(request.sender)
        self._attempts[request.sender] += 1
        self._present[request.sender] += 1
        self._num_attempts += 1

    def end_attempt(self, request: RoutedRequest) -> None:
        """The attempt has ended, or the place is another's."""
        _count_down(self._attempts, request.sender)
        _count_down(self._present, request.sender)
        self._num_attempts -= 1
        if request.sender not in self._attempts:
            self._service.end_running(request.sender)

    def correct_prompt(self, request: RoutedRequest, tokens: float) -> None:
        """The prompt of ``request``, which was charged before, has ``tokens``."""
        if request.charged_prompt is not None:
            self._charge_tenant(request, PROMPT_TOKEN_COST * (tokens - request.charged_prompt))
            request.charged_prompt = tokens

    def count_output(self, request: RoutedRequest, tokens: int) -> None:
        """The answer to ``request`` has ``tokens`` more."""
        self._charge_tenant(request, OUTPUT_TOKEN_COST * tokens)

    def _charge_tenant(self, request: RoutedRequest, cost: float) -> None:
        self._service.add(request.sender, cost, request.turn.weight)

    def _begin_waiting(self, sender: str) -> None:
        if sender not in self._waiting:
            self._service.begin_waiting(sender)

    def _of_class(self, senders: dict[str, list[RoutedRequest]]) -> Iterator[RoutedRequest]:
        service, attempts = self._service, self._attempts
        heads = [(service[sender], attempts[sender], queue[0].arrival, sender, 0) for sender, queue in senders.items()]
        heapify(heads)
        while heads:
            served, running, arrival, sender, index = heads[0]
            if service[sender] > served:
                heapreplace(heads, (service[sender], running, arrival, sender, index))
                continue
            queue = senders[sender]
            yield queue[index]
            if index + 1 < len(queue):
                heapreplace(heads, (service[sender], attempts[sender], queue[index + 1].arrival, sender, index + 1))
            else:
                heappop(heads)


def _get_arrival(request: RoutedRequest) -> int:
    return request.arrival


def _count_down(counts: Counter[str], sender: str) -> None:
    counts[sender] -= 1
    if not counts[sender]:
        del counts[sender]
