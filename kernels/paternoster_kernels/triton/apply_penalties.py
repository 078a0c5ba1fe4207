"""Repetition, presence and frequency penalties from per-request tables."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def apply_penalties_kernel(
    logits, out, output_counts, prompt_bits, requests, repetition, presence, frequency, vocab, words, logits_stride,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid: rows, blocks of the vocabulary."""
    row = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    used = token < vocab
    request = tl.load(requests + row)
    values = tl.load(logits + row * logits_stride + token, mask=used, other=0.0).to(tl.float32)
    counts = tl.load(output_counts + request * vocab + token, mask=used, other=0)
    in_prompt = (tl.load(prompt_bits + request * words + token // 32, mask=used, other=0) >> (token % 32)) & 1
    factor = tl.load(repetition + row)
    repeated = tl.where(values > 0.0, tl.div_rn(values, factor), values * factor)
    values = tl.where((counts > 0) | (in_prompt > 0), repeated, values)
    less = tl.load(presence + row) + tl.load(frequency + row) * counts.to(tl.float32)
    tl.store(out + row * vocab + token, tl.where(counts > 0, values - less, values), mask=used)


def apply_penalties(
    logits: torch.Tensor,
    output_counts: torch.Tensor,
    prompt_bits: torch.Tensor,
    requests: torch.Tensor,
    repetition: torch.Tensor,
    presence: torch.Tensor,
    frequency: torch.Tensor,
) -> torch.Tensor:
    """Apply penalties to logits; the tables are contiguous."""
    rows, vocab = logits.shape
    out = torch.empty(rows, vocab, dtype=torch.float32, device=logits.device)
    apply_penalties_kernel[(rows, triton.cdiv(vocab, BLOCK))](
        logits, out, output_counts, prompt_bits, requests, repetition, presence, frequency,
        vocab, prompt_bits.shape[1], logits.stride(0), BLOCK=BLOCK,
    )  # fmt: skip
    return out
