"""Sampling against the reference: the same tokens, the same noise, and only from what the filters keep."""

import pytest
import torch
from tests.kernels.device.guard_bands import guarded_outputs

from paternoster_kernels import reference
from paternoster_kernels.reference.sample import NO_TOKEN, find_threshold, gumbel_noise
from paternoster_kernels.token_masks import TokenMasks
from paternoster_kernels.triton.apply_penalties import apply_penalties
from paternoster_kernels.triton.sample import argmax, sample

VOCAB = 1100


def settings(rows: int, generator: torch.Generator, **fixed: float) -> tuple[torch.Tensor, ...]:
    """Temperature, top-k, top-p, min-p, seeds and positions, each row with filters of its own."""
    device = generator.device

    def choose(name: str, options: list[float]) -> torch.Tensor:
        values = torch.tensor([fixed[name]] if name in fixed else options, device=device)
        return values[torch.randint(len(values), (rows,), generator=generator, device=device)]

    return (
        choose("temperature", [0.0, 0.3, 1.0, 1.7]),
        choose("top_k", [0, 1, 2, 40, VOCAB - 1, VOCAB]).int(),
        choose("top_p", [1.0, 0.0, 0.1, 0.9, 0.999]),
        choose("min_p", [0.0, 0.05, 1.0]),
        torch.randint(2**62, (rows,), generator=generator, device=device) * 4 - 2**63,
        torch.randint(100_000, (rows,), generator=generator, device=device),
    )


def test_same_tokens_as_the_reference(generator: torch.Generator) -> None:
    rows = 16
    logits = 4 * torch.randn(rows, VOCAB + 3, generator=generator, device=generator.device)[:, :VOCAB]
    logits[5, 7:] = float("-inf")
    chosen = settings(rows, generator)
    with guarded_outputs():
        got = sample(logits, *chosen)
    temperature, top_k, top_p, min_p, _, _ = chosen
    scores = logits.double() / torch.where(temperature == 0, 1, temperature)[:, None]
    # Where the exact threshold depends on the last digit of top-p, either token may be kept.
    around = [find_threshold(scores, top_k, top_p + shift * (top_p < 1), min_p) for shift in (-3e-6, 3e-6)]
    clear = around[0] == around[1]
    assert clear.any()
    # Noise is float32 on both sides: where two tokens tie but for its last digits, either may win.
    noisy = scores + gumbel_noise(chosen[4], chosen[5], VOCAB).double()
    noisy.masked_fill_(scores < find_threshold(scores, top_k, top_p, min_p)[:, None] - 1e-5, float("-inf"))
    best = torch.where((temperature == 0)[:, None], scores, noisy)
    clear |= temperature == 0
    lost = best.amax(-1) - best.gather(1, got[:, None]).squeeze(1)
    assert (lost[clear] <= 1e-4).all(), (lost, clear)
    same = got == reference.sample(logits, *chosen)
    assert same[clear].float().mean() > 0.9


@pytest.mark.parametrize(
    ("filters", "fourth"),
    [
        ({"top_k": 3, "top_p": 1.0, "min_p": 0.0}, 0.0),
        ({"top_k": 0, "top_p": 0.6, "min_p": 0.0}, 0.0),
        ({"top_k": 0, "top_p": 1.0, "min_p": 0.5}, -1.0),
        ({"top_k": 4, "top_p": 0.6, "min_p": 0.5}, 0.0),
    ],
    ids=["top-k", "top-p", "min-p", "all"],
)
def test_filters_keep_neither_more_nor_less(
    filters: dict[str, float], fourth: float, generator: torch.Generator
) -> None:
    """Three of four tokens; that 40 draws miss one of them happens three times in ten million runs."""
    row = torch.full((1, 60), -30.0, device=generator.device)
    row[0, [7, 30, 31, 59]] = torch.tensor([1e-3, 3e-3, fourth, 2e-3], device=generator.device)
    chosen = settings(40, generator, temperature=1.0, **filters)
    assert set(sample(row.expand(40, -1), *chosen).tolist()) == {7, 30, 59}


def test_masked_rows_draw_from_what_their_masks_allow(generator: torch.Generator) -> None:
    """The tokenizer has fewer tokens than the model has logits."""
    rows = 14
    logits = torch.randn(rows, 60, generator=generator, device=generator.device)
    chosen = settings(rows, generator)
    masks = TokenMasks.pack_masks([(row, bytes([0b10010000, 0, 1])) for row in range(0, rows, 2)], generator.device)
    got = sample(logits, *chosen, masks)
    assert {*got[::2].tolist()} <= {4, 7, 16}
    assert torch.equal(got[1::2], sample(logits, *chosen)[1::2])
    assert torch.equal(got, sample(masks.forbid_tokens(logits), *chosen))


def test_draws_follow_the_softmax(generator: torch.Generator) -> None:
    """Chi-squared of draws over 6 tokens; 5 degrees of freedom exceed 30.9 once in 100,000 runs."""
    rows = 150
    row = torch.tensor([[1.0, 0.0, -1.0, 2.0, 0.5, 1.5]], device=generator.device)
    chosen = settings(rows, generator, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    counts = torch.bincount(sample(row.expand(rows, -1), *chosen), minlength=6).double()
    expected = rows * row[0].double().softmax(0)
    assert ((counts - expected) ** 2 / expected).sum() < 30.9


def test_ties_are_kept_together(generator: torch.Generator) -> None:
    row = torch.full((1, 100), -5.0, device=generator.device)
    row[0, [3, 60, 61, 99]] = 2.0
    chosen = settings(30, generator, temperature=1.0, top_k=2, top_p=1.0, min_p=0.0)
    assert set(sample(row.expand(30, -1), *chosen).tolist()) == {3, 60, 61, 99}


def test_minus_zero_ties_with_zero(generator: torch.Generator) -> None:
    row = torch.tensor([[0.0, -0.0, -9.0]], device=generator.device)
    chosen = settings(40, generator, temperature=1.0, top_k=1, top_p=1.0, min_p=0.0)
    assert set(sample(row.expand(40, -1), *chosen).tolist()) == {0, 1}


def test_a_row_draws_the_same_in_any_batch(generator: torch.Generator) -> None:
    logits = torch.randn(5, VOCAB, generator=generator, device=generator.device)
    chosen = settings(5, generator)
    together = sample(logits, *chosen)
    for row in range(5):
        assert sample(logits[row : row + 1], *(column[row : row + 1] for column in chosen)) == together[row]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("vocab", [1, 31, 4096, 5000])
def test_argmax_takes_the_first_of_equals(vocab: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    logits = torch.randint(-3, 4, (6, vocab), generator=generator, device=generator.device).to(dtype)
    with guarded_outputs():
        got = argmax(logits)
    assert torch.equal(got, reference.argmax(logits))


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_row_with_nan_or_infinity_anywhere_gives_no_token(broken: float, generator: torch.Generator) -> None:
    logits = torch.randn(6, VOCAB, generator=generator, device=generator.device)
    chosen = settings(6, generator)
    tokens = sample(logits, *chosen)
    for row, place in ((0, 0), (2, 700), (5, VOCAB - 1)):
        logits[row, place] = broken
        tokens[row] = NO_TOKEN
    assert torch.equal(sample(logits, *chosen), tokens)
    for dtype in (torch.float32, torch.bfloat16):
        got = argmax(logits.to(dtype))
        assert torch.equal(got, reference.argmax(logits.to(dtype)))
        assert (got == NO_TOKEN).tolist() == [True, False, True, False, False, True]


@pytest.mark.parametrize("filling", [float("nan"), float("-inf")])
def test_hopeless_logits_give_no_token(filling: float, generator: torch.Generator) -> None:
    logits = torch.full((6, 50), filling, device=generator.device)
    for got in (argmax(logits), sample(logits, *settings(6, generator))):
        assert (got == NO_TOKEN).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_penalties(dtype: torch.dtype, generator: torch.Generator) -> None:
    device, vocab = generator.device, 1030
    logits = torch.randn(4, vocab, generator=generator, device=device).to(dtype)
    counts = torch.randint(-6, 4, (3, vocab), generator=generator, device=device).clamp(min=0).int()
    bits = torch.randint(-(2**31), 2**31, (3, -(-vocab // 32)), generator=generator, device=device).int()
    requests = torch.tensor([2, 0, 2, 1], device=device)
    penalties = [torch.tensor(row, device=device) for row in ([1.0, 1.3, 0.7, 2.0], [0, 0.5, -1, 2], [0, 0.1, 0.2, -2])]
    with guarded_outputs():
        got = apply_penalties(logits, counts, bits, requests, *penalties)
    expected = reference.apply_penalties(logits.double(), counts, bits, requests, *penalties)
    torch.testing.assert_close(got.double(), expected, rtol=1e-6, atol=1e-6)
