"""Requests that begin where an engine before this one had got with them."""

from collections.abc import Collection, Sequence

from paternoster_contract.stream_journal import RESUME, JournalEntry
from paternoster_engine.core.request import FinishReason, Request, RequestStatus, TokenLogprobs
from paternoster_engine.server.errors import InvalidValue

ENDS = frozenset({FinishReason.STOP.value, FinishReason.LENGTH.value})


def restore_output(
    requests: Sequence[Request], entries: Sequence[JournalEntry], vocab_size: int, *, has_prompts: bool = True
) -> None:
    """Give ``requests``, which are not queued yet, the output that ``entries`` have of them.

    ``has_prompts``: the client has the log probabilities of prompts that it asked for; else they are computed again.
    Raises :class:`InvalidValue` for a journal that is not of these requests.
    """
    for entry in entries:
        if entry.choice >= len(requests):
            raise _not_of_call(f"choice {entry.choice} of {len(requests)}")
        request = requests[entry.choice]
        if max(entry.tokens, default=0) >= vocab_size:
            raise _not_of_call(f"token {max(entry.tokens)} of {vocab_size}")
        if len(request.output) + len(entry.tokens) > request.params.max_tokens:
            raise _not_of_call(f"more than {request.params.max_tokens} tokens")
        if entry.finish_reason is not None and entry.finish_reason not in ENDS:
            raise _not_of_call("an end that is none of a choice's")
        request.output += entry.tokens
        if request.params.logprobs is not None:
            if len(entry.logprobs) != len(entry.tokens):
                raise _not_of_call("no log probabilities")
            request.logprobs += [
                TokenLogprobs(token, found.logprob, found.rank, found.top)
                for token, found in zip(entry.tokens, entry.logprobs, strict=True)
            ]
    for request in requests:
        request.status = RequestStatus.PREEMPTED  # it was admitted before, and leads those that were not
        if has_prompts and request.output and request.params.prompt_logprobs is not None:
            # Nothing reads these any more.
            request.prompt_logprobs = [TokenLogprobs(token, 0.0, 1, ()) for token in request.prompt[1:]]


def replace_ended_donors(requests: Sequence[Request], open_ids: Collection[str]) -> None:
    """Make the first of the sequences of each prompt that go on the one whose blocks the others begin with."""
    donors: dict[str, Request] = {}
    for request in requests:
        donor = request.prefix_donor or request
        if request.request_id in open_ids:
            first = donors.setdefault(donor.request_id, request)
            request.prefix_donor = None if request is first else first


def _not_of_call(fault: str) -> InvalidValue:
    return InvalidValue(RESUME, f"{RESUME}: the journal is not of this call: it has {fault}")
