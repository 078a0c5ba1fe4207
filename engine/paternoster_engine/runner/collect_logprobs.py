"""Which rows of a step give log probabilities, and for which requests."""

from collections.abc import Sequence

import torch

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.request import Request, TokenLogprobs
from paternoster_engine.sampling.logprobs import token_logprobs


def prompt_rows(item: ScheduledRequest) -> range:
    """Tokens of the chunk whose logits are about the prompt token after them, as far as requests still need those."""
    request = item.request
    if request.params.prompt_logprobs is None:
        return range(0)
    return range(max(item.start, len(request.prompt_logprobs)), min(item.stop, request.num_prompt - 1))


def collect_prompt_logprobs(
    logits: torch.Tensor, scheduled: Sequence[ScheduledRequest]
) -> dict[Request, list[TokenLogprobs]]:
    """What ``logits [rows, vocab]`` say of prompts; the rows are the items' :func:`prompt_rows`, one by one."""
    collected: dict[Request, list[TokenLogprobs]] = {}
    first = 0
    for item in scheduled:
        request, rows = item.request, prompt_rows(item)
        if not rows or request.params.prompt_logprobs is None:
            continue
        tokens = request.prompt[rows.start + 1 : rows.stop + 1]
        counts = [request.params.prompt_logprobs] * len(rows)
        collected[request] = list(token_logprobs(logits[first : first + len(rows)], tokens, counts))
        first += len(rows)
    return collected


def collect_logprobs(
    logits: torch.Tensor, requests: Sequence[Request], tokens: Sequence[int]
) -> dict[Request, list[TokenLogprobs]]:
    """What row ``i`` of ``logits [rows, vocab]`` says of ``tokens[i]``, sampled from it for ``requests[i]``.

    For those that ask, row by row; nothing is sampled for those that branch. For a row without a chosen token
    (``NO_TOKEN``) the result has no meaning.
    """
    with_logprobs = [
        (i, k)
        for i, request in enumerate(requests)
        if (k := request.params.logprobs) is not None and request.branch_selector is None
    ]
    if not with_logprobs:
        return {}
    rows = [i for i, _ in with_logprobs]
    logprobs = token_logprobs(logits[rows], [max(0, tokens[i]) for i in rows], [k for _, k in with_logprobs])
    collected: dict[Request, list[TokenLogprobs]] = {}
    for i, each in zip(rows, logprobs, strict=True):
        collected.setdefault(requests[i], []).append(each)
    return collected
