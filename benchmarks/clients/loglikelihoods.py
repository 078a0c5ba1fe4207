"""lm-eval's log likelihoods of continuations by an engine; run in its environment. ``reference``: transformers'."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

PAIRS = (
    ("The capital of Japan is", " Tokyo"),
    ("The capital of Japan is", " Kyoto"),
    ("A lift that never stops is called", " a paternoster."),
    ("2 + 2 =", " 4"),
    ("2 + 2 =", " five hundred"),
)
TOLERANCE = 1e-3
"""Nats; an engine and transformers both in float32."""

Loglikelihood = tuple[float, bool]
"""Log probability of a continuation, and whether each of its tokens is the most likely."""


def reference(source: str) -> list[Loglikelihood]:
    """Log probabilities of :data:`PAIRS` by transformers in float32, from the GGUF file of ``source``."""
    import torch
    from transformers import AutoModelForCausalLM

    from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
    from paternoster_engine.model.source import resolve_source

    found = resolve_source(source)
    tokenizer = open_checkpoint(found).build_tokenizer()
    model = AutoModelForCausalLM.from_pretrained(
        str(found.path.parent), gguf_file=found.path.name, dtype=torch.float32
    ).eval()
    sums = []
    for context, continuation in PAIRS:
        ids, first = tokenizer.encode(context + continuation), len(tokenizer.encode(context))
        with torch.inference_mode():
            logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        places = range(first, len(ids))
        total = sum(float(logprobs[place - 1, ids[place]]) for place in places)
        sums.append((total, all(int(logprobs[place - 1].argmax()) == ids[place] for place in places)))
    return sums


def largest_difference(ours: Sequence[Loglikelihood], theirs: Sequence[Loglikelihood]) -> float:
    """Largest difference in nats; raises ``RuntimeError`` above :data:`TOLERANCE`, or for other most likely tokens."""
    difference = max(abs(a - b) for (a, _), (b, _) in zip(ours, theirs, strict=True))
    if difference > TOLERANCE or [greedy for _, greedy in ours] != [greedy for _, greedy in theirs]:
        raise RuntimeError(f"the engine's log likelihoods are {ours}, transformers' {theirs}")
    return difference


def main() -> None:
    """Write those that lm-eval gets from an engine: URL, model, folder of a tokenizer, file."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    url, model, tokenizer, out = sys.argv[1:5]
    client = LocalCompletionsAPI(
        base_url=f"{url}/v1/completions", model=model, tokenizer=tokenizer, tokenizer_backend="huggingface",
        num_concurrent=1, max_retries=1, batch_size=1,
    )  # fmt: skip
    requests = [Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(PAIRS)]
    Path(out).write_text(json.dumps(client.loglikelihood(requests)))


if __name__ == "__main__":
    main()
