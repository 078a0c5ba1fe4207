"""The stateless random numbers: repeatable, independent of the row, and shaped like Gumbel noise."""

import math

import torch

from paternoster_engine.sampling.random import gumbel_noise, row_keys

CPU = torch.device("cpu")
IDS = torch.arange(4096, dtype=torch.int32).unsqueeze(0)


def _noise(seeds: list[int], positions: list[int]) -> torch.Tensor:
    return gumbel_noise(row_keys(seeds, positions, CPU), IDS)


def test_a_function_of_seed_position_and_token() -> None:
    together = _noise([7, 8, 7, 2**64 - 1], [3, 3, 4, 0])
    assert torch.equal(together[2], _noise([7], [4])[0])
    assert torch.equal(together[0, 100:], gumbel_noise(row_keys([7], [3], CPU), IDS[:, 100:])[0])
    for other in together[1:]:
        assert (together[0] == other).sum() < 3


def test_follows_the_gumbel_distribution() -> None:
    noise = _noise(list(range(256)), [11] * 256).flatten().double()
    uniform = (-(-noise).exp()).exp()
    bins = torch.histc(uniform, 64, 0, 1)
    expected = len(uniform) / 64
    chi_square = ((bins - expected) ** 2 / expected).sum()
    assert chi_square < 63 + 5 * math.sqrt(2 * 63)
    assert noise.isfinite().all()


def test_neighbouring_seeds_positions_and_tokens_are_uncorrelated() -> None:
    noise = _noise([5] * 64 + list(range(64)), list(range(64)) + [5] * 64).double()
    noise = (noise - noise.mean()) / noise.std()
    limit = 5 / math.sqrt(noise.numel())
    assert abs((noise[1:] * noise[:-1]).mean()) < limit
    for lag in (1, 2, 64):
        assert abs((noise[:, lag:] * noise[:, :-lag]).mean()) < limit
