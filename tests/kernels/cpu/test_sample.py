"""Sampling in C++: the tokens of the reference, whatever the rows' settings, widths and edges."""

from itertools import product

import pytest
import torch

from paternoster_kernels import reference
from paternoster_kernels.cpu.sample import sample
from paternoster_kernels.reference.sample import NO_TOKEN, gumbel_noise
from paternoster_kernels.token_masks import TokenMasks

pytestmark = pytest.mark.usefixtures("instructions")

SETTINGS = list(product((0.0, 0.3, 1.0, 1.9), (0, 1, 7, 60), (1.0, 0.0, 0.3137, 0.9), (0.0, 0.0371, 1.0)))
"""Temperature, top-k, top-p, min-p: of each a few that do nothing."""


def _columns(rows: list[tuple[float, ...]], first_seed: int = 0) -> tuple[torch.Tensor, ...]:
    seeds = torch.arange(first_seed, first_seed + len(rows)) * -7046029254386353131
    kinds = (torch.float32, torch.int32, torch.float32, torch.float32)
    values = [torch.tensor(column, dtype=kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return (*values, seeds, torch.arange(len(rows)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("vocab", [3, 70, 1203])
def test_the_tokens_of_the_reference(vocab: int, dtype: torch.dtype) -> None:
    logits = 3 * torch.randn(len(SETTINGS), vocab, generator=torch.Generator().manual_seed(vocab))
    logits[::5, 1::3] = -float("inf")
    columns = _columns(SETTINGS)
    logits = logits.to(dtype)
    assert torch.equal(sample(logits, *columns), reference.sample(logits, *columns))


@pytest.mark.parametrize("scale", [0.0, 0.01, 20.0])
def test_flat_and_steep_rows(scale: float) -> None:
    """A flat one keeps nearly all with top-p, a steep one hardly any."""
    rows = [(1.0, 0, 1.0, 0.0), (1.0, 0, 0.9, 0.0), (0.7, 300, 0.95, 0.0), (1e-5, 0, 1.0, 0.0)] * 8
    logits = scale * torch.randn(len(rows), 2000, generator=torch.Generator().manual_seed(5))
    columns = _columns(rows, first_seed=9)
    assert torch.equal(sample(logits, *columns), reference.sample(logits, *columns))


@pytest.mark.parametrize(
    ("settings", "token_ids"),
    [((1.0, 2, 1.0, 0.0), {5, 30, 31}), ((1.0, 0, 0.5, 0.0), {5, 30, 31}), ((1.0, 0, 1.0, 0.3), {5, 30, 31})],
    ids=["top-k", "top-p", "min-p"],
)
def test_equals_of_the_last_score_are_kept(settings: tuple[float, ...], token_ids: set[int]) -> None:
    logits = torch.full((1, 33), -1.0)
    logits[0, [5, 30, 31]] = torch.tensor([5.0, 4.5, 4.5])
    assert set(sample(logits.expand(60, -1), *_columns([settings] * 60)).tolist()) == token_ids


def test_a_draw_is_the_best_of_score_plus_noise() -> None:
    """A row is as wide as real ones; the noise itself is compared."""
    rows = [(1.0, 0, 1.0, 0.0)] * 4
    logits, columns = torch.randn(4, 49_152, generator=torch.Generator().manual_seed(1)), _columns(rows, 3)
    expected = (logits + gumbel_noise(*columns[4:], 49_152)).argmax(-1)
    assert torch.equal(sample(logits, *columns), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("vocab", [1, 37, 48, 1203])
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_row_with_nan_or_infinity_anywhere_gives_no_token(vocab: int, dtype: torch.dtype, broken: float) -> None:
    """Whatever its settings; rows beside it have theirs."""
    rows = [(0.0, 0, 1.0, 0.0), (1.0, 0, 1.0, 0.0), (1.0, 3, 0.5, 0.1)]
    generator = torch.Generator().manual_seed(vocab)
    logits, columns = torch.randn(3, vocab, generator=generator).to(dtype), _columns(rows)
    before = sample(logits, *columns).tolist()
    for row in range(3):
        for place in {0, vocab // 2, vocab - 1}:
            poisoned = logits.clone()
            poisoned[row, place] = broken
            expected = [*before[:row], NO_TOKEN, *before[row + 1 :]]
            assert sample(poisoned, *columns).tolist() == expected
            assert reference.sample(poisoned, *columns).tolist() == expected


def test_rows_that_allow_nothing_give_no_token() -> None:
    logits, columns = (
        torch.full((3, 40), -float("inf")),
        _columns([(0.0, 0, 1.0, 0.0), (1.0, 0, 1.0, 0.0), (1.0, 3, 0.5, 0.1)]),
    )
    assert sample(logits, *columns).tolist() == reference.sample(logits, *columns).tolist() == [NO_TOKEN] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("vocab", "num_tokens"), [(3, 8), (70, 72), (1203, 1200), (1203, 616), (48, 8)])
def test_masks(vocab: int, num_tokens: int, dtype: torch.dtype) -> None:
    """Some of the rows have masks, in no order; the model has more logits than the tokenizer has tokens, or fewer."""
    generator = torch.Generator().manual_seed(vocab + num_tokens)
    logits = (3 * torch.randn(len(SETTINGS), vocab, generator=generator)).to(dtype)
    rows = torch.randperm(len(SETTINGS), generator=generator)[: 2 * len(SETTINGS) // 3]
    allowed = (
        torch.rand(len(rows), num_tokens, generator=generator) < torch.rand(len(rows), 1, generator=generator) ** 2
    )
    allowed[torch.arange(len(rows)), torch.arange(len(rows)) % min(num_tokens, vocab)] = True
    packed = (allowed.view(len(rows), -1, 8) << torch.arange(8)).sum(-1, dtype=torch.uint8)
    columns, masks = _columns(SETTINGS), TokenMasks(packed, rows)
    tokens = sample(logits, *columns, masks)
    assert torch.equal(tokens, reference.sample(logits, *columns, masks))
    assert all(allowed[i, token] for i, token in enumerate(tokens[rows].tolist()))
    others = torch.ones(len(SETTINGS), dtype=torch.bool).index_fill_(0, rows, False)
    assert torch.equal(tokens[others], sample(logits, *columns)[others])


def test_a_mask_does_not_hide_broken_logits() -> None:
    """The one number that it allows was computed with those that it forbids."""
    masks = TokenMasks.pack_masks([(1, bytes([0, 0, 0b100]))], torch.device("cpu"))
    logits, columns = torch.full((2, 24), float("nan")), _columns([(0.0, 0, 1.0, 0.0), (1.0, 0, 0.9, 0.1)])
    logits[:, 18] = -1000.0
    assert (
        sample(logits, *columns, masks).tolist() == reference.sample(logits, *columns, masks).tolist() == [NO_TOKEN] * 2
    )


def test_other_numbers_and_orders_of_memory() -> None:
    columns = _columns(SETTINGS[:40])
    wide = torch.randn(50, 40, generator=torch.Generator().manual_seed(2)).mT
    assert torch.equal(sample(wide, *columns), reference.sample(wide, *columns))
    assert torch.equal(sample(wide.double(), *columns), reference.sample(wide.double(), *columns))
