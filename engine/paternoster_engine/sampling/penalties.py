"""Presence, frequency and repetition penalties, with vLLM's meanings."""

import torch

from paternoster_engine.core.matching import SamplerRow


def apply_penalties(logits: torch.Tensor, request: SamplerRow) -> None:
    """Change one row ``logits [vocab]`` (float32) in place.

    Repetition (arXiv 1909.05858) looks at prompt and output; presence and frequency at the output alone,
    as in the OpenAI API.
    """
    params = request.params
    if params.repetition_penalty != 1.0:
        seen = torch.tensor(request.prompt + request.output, device=logits.device).unique()
        values = logits[seen]
        penalty = params.repetition_penalty
        logits[seen] = torch.where(values > 0, values / penalty, values * penalty)
    if request.output and (params.presence_penalty != 0.0 or params.frequency_penalty != 0.0):
        seen, counts = torch.tensor(request.output, device=logits.device).unique(return_counts=True)
        logits[seen] -= params.presence_penalty + params.frequency_penalty * counts


def forbid_early_end(logits: torch.Tensor, request: SamplerRow) -> None:
    """Rule out the tokens that end a request while it is shorter than ``min_tokens``; masks have done so themselves."""
    if (
        request.matcher is None
        and not request.params.allowed_tokens
        and len(request.output) < request.params.min_tokens
    ):
        # Added, so that NaN stays what it is.
        logits[list(request.eos_token_ids + request.params.stop_token_ids)] += float("-inf")
