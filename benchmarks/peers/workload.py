"""The standard workload as requests with exact token ids."""

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from tokenizers import Tokenizer

from paternoster_load.results import BenchRequest, RequestResult
from paternoster_traces import workload
from paternoster_traces.prompts import PromptSource, default_text
from paternoster_traces.trace import read_trace


def standard_requests(trace: Path, checkpoint: Path) -> list[BenchRequest]:
    """64 requests drawn with seed 0: prompts of 1..512 tokens cut from a text, outputs of 8..256 to be forced."""
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    source = PromptSource(tokenizer.encode(default_text(), add_special_tokens=False).ids)
    rows = workload.standardize_rows(read_trace(trace))
    return [BenchRequest(n, source.make_prompt(n, row.prompt_tokens), row.output_tokens) for n, row in enumerate(rows)]


def warm_up(requests: Sequence[BenchRequest], count: int = 8) -> list[BenchRequest]:
    """The last ``count`` requests backwards, eight tokens each: other prompts than the first ones that are measured."""
    return [BenchRequest(-1 - n, r.prompt[::-1], 8) for n, r in enumerate(requests[-count:])]


def digest(requests: Sequence[BenchRequest]) -> str:
    """A name for these very requests."""
    return sha256(json.dumps([(r.prompt, r.max_tokens) for r in requests]).encode()).hexdigest()[:12]


def unlike(requests: Sequence[BenchRequest], results: Sequence[RequestResult]) -> list[str]:
    """What differs from what was asked for, a line for each request: prompts cut or added to, answers too short."""
    found = []
    for request, result in zip(requests, results, strict=True):
        wanted = request.prompt_tokens, request.max_tokens
        got = result.prompt_tokens, result.output_tokens
        if result.error or wanted != got:
            found.append(f"request {request.index}: {result.error or f'{got} tokens: must be {wanted}'}")
    return found
