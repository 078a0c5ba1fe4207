"""Which rows of a step have log probabilities to tell, and to whom."""

from collections.abc import Sequence

import torch

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.request import Request
from paternoster_engine.sampling.logprobs import token_logprobs


def prompt_rows(item: ScheduledRequest) -> range:
    """Tokens of the chunk whose logits tell of the prompt token after them, if that is asked for and not told yet."""
    request = item.request
    if request.params.prompt_logprobs is None:
        return range(0)
    return range(max(item.start, len(request.prompt_logprobs)), min(item.stop, request.num_prompt - 1))


def tell_prompts(logits: torch.Tensor, scheduled: Sequence[ScheduledRequest]) -> None:
    """Add what ``logits [rows, vocab]`` say of prompts; the rows are the items' :func:`prompt_rows`, one by one."""
    told = 0
    for item in scheduled:
        request, rows = item.request, prompt_rows(item)
        if not rows or request.params.prompt_logprobs is None:
            continue
        tokens = request.prompt[rows.start + 1 : rows.stop + 1]
        counts = [request.params.prompt_logprobs] * len(rows)
        request.prompt_logprobs += token_logprobs(logits[told : told + len(rows)], tokens, counts)
        told += len(rows)


def tell_sampled(logits: torch.Tensor, requests: Sequence[Request], tokens: Sequence[int]) -> None:
    """Add what row ``i`` of ``logits [rows, vocab]`` says of ``tokens[i]``, sampled from it for ``requests[i]``.

    Of a beam nothing is sampled.
    """
    asked = [
        (i, k)
        for i, request in enumerate(requests)
        if (k := request.params.logprobs) is not None and request.group is None
    ]
    if not asked:
        return
    rows = [i for i, _ in asked]
    told = token_logprobs(logits[rows], [tokens[i] for i in rows], [k for _, k in asked])
    for i, logprobs in zip(rows, told, strict=True):
        requests[i].logprobs.append(logprobs)
