"""Repetition, presence and frequency penalties from tables of each request's tokens, with vLLM's meanings."""

import torch


def apply_penalties(
    logits: torch.Tensor,
    output_counts: torch.Tensor,
    prompt_bits: torch.Tensor,
    requests: torch.Tensor,
    repetition: torch.Tensor,
    presence: torch.Tensor,
    frequency: torch.Tensor,
) -> torch.Tensor:
    """``logits [rows, vocab]`` penalised, float32 (float64 for float64).

    ``output_counts [requests, vocab]`` int32: how often each token is in a request's output. ``prompt_bits [requests,
    ceil(vocab / 32)]`` int32: bit ``t % 32`` of word ``t // 32`` says that token ``t`` is in its prompt. ``requests
    [rows]`` int64: row ``i`` is of that request. Repetition (arXiv 1909.05858) looks at prompt and output; presence and
    frequency, as in the OpenAI API, at the output; ``[rows]`` float32 each.
    """
    vocab = logits.shape[1]
    counts = output_counts[requests]
    words = prompt_bits[requests].repeat_interleave(32, 1)[:, :vocab]
    in_prompt = (words >> (torch.arange(vocab, device=logits.device) % 32)) & 1 > 0
    values = logits.to(torch.promote_types(logits.dtype, torch.float32))
    factor = repetition[:, None]
    repeated = torch.where(values > 0, values / factor, values * factor)
    values = torch.where((counts > 0) | in_prompt, repeated, values)
    return values - torch.where(counts > 0, presence[:, None] + frequency[:, None] * counts, 0.0)
