"""The arithmetic of the GPU check."""

from collections.abc import Iterator

import pytest
import torch

from gpu.budget import Budget
from gpu.engines.end_to_end import prefill_flops
from gpu.engines.engine_oracle import Verdict, _compare
from gpu.engines.engine_parts import FULL
from gpu.engines.random_weights import random_weights
from gpu.engines.setting import forced
from gpu.engines.shapes import LLAMA3, QWEN3, QWEN3_SMALL, SMOLLM2, TINY
from gpu.engines.theirs import Work
from gpu.engines.tiny_models import tiny_models
from paternoster_engine.core.request import TokenLogprobs
from paternoster_engine.model.checkpoints.shapes import expected_shapes
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.families.registry import FAMILIES, find_family


def parameters(config: ModelConfig) -> int:
    """Counted by the tensors that are loaded."""
    return sum(torch.Size(shape).numel() for _, shape in expected_shapes(config))


@pytest.mark.parametrize(
    ("config", "millions"),
    [(SMOLLM2, 134.5), (QWEN3_SMALL, 596.0), (LLAMA3, 8030.3), (QWEN3, 14768.3)],
    ids=lambda value: getattr(value, "name", None),
)
def test_sizes_are_the_models(config: ModelConfig, millions: float) -> None:
    """Parameter counts as published."""
    assert parameters(config) / 1e6 == pytest.approx(millions, abs=0.1)


def test_every_family_has_a_tiny_model() -> None:
    assert {id(find_family(config.architecture)) for config in tiny_models()} == {id(one) for one in FAMILIES.values()}


def test_random_weights_keep_activations_in_bounds() -> None:
    weights = random_weights(TINY, torch.float32, torch.Generator().manual_seed(0), spread=3.0)
    normal = torch.randn(TINY.hidden_size, generator=torch.Generator().manual_seed(1))
    assert 0.5 < (weights("model.layers.1.self_attn.q_proj.weight") @ normal).std() < 2
    assert 1.5 < (weights("lm_head.weight") @ normal).std() < 6
    assert weights("model.norm.weight").mean() == pytest.approx(1.0, abs=0.1)


def test_a_budget_runs_out(capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([0.0, 1.0, 2.0, 2.0, 5.0, 9.0])
    whole = Budget(10.0, lambda: next(now))
    assert whole.allows("one")
    part = whole.part(2.5)
    assert not part.allows("two")
    assert "two: not measured, the 2 s for this part were over" in capsys.readouterr().out
    assert whole.left == 1.0


def test_parts_share_what_is_left() -> None:
    ticks: Iterator[float] = iter([0.0, 8.0, 8.0])
    whole = Budget(10.0, lambda: next(ticks))
    assert whole.part(100.0)._seconds == 2.0


def test_the_whole_fits_into_nine_minutes() -> None:
    assert FULL.oracle_seconds + FULL.load_seconds + FULL.compare_seconds <= 500 - 120


def test_work_of_many_lengths() -> None:
    work = Work.draw(64, 512, 256, 1000)
    assert work == Work.draw(64, 512, 256, 1000)
    assert all(64 <= len(prompt) <= 512 for prompt in work.prompts)
    assert all(32 <= length <= 256 for length in work.lengths)
    assert len({len(prompt) for prompt in work.prompts}) > 32


def test_prefill_operations() -> None:
    """Counted by hand: matrices but the head for each token, the head once a prompt, half a square of attention."""
    config = TINY
    layer = 64 * (256 + 2 * 128) + 256 * 64 + 3 * 64 * 96
    matrices = config.num_layers * layer + 512 * 64
    expected = 3 * (10 * 2 * config.num_layers * layer + 2 * 512 * 64 + config.num_layers * 4 * 256 * 10 * 10 / 2)
    assert prefill_flops(2 * matrices, config, 3, 10) == expected


def test_requests_may_part_at_a_near_tie_only() -> None:
    def host(second: float) -> list:
        request = forced("r", [1], 3)
        request.output = [4, 5, 6]
        request.logprobs = [
            TokenLogprobs(4, -0.1, 1, ((4, -0.1),)),
            TokenLogprobs(5, -1.0, 1, ((5, -1.0), (7, second))),
            TokenLogprobs(6, -0.5, 1, ((6, -0.5),)),
        ]
        return [request]

    def device(*output: int) -> list:
        request = forced("r", [1], 3)
        request.output = list(output)
        return [request]

    assert _compare("x", host(-1.5), device(4, 5, 6)) == Verdict("x", 1, 1, 0)
    assert _compare("x", host(-1.0005), device(4, 7, 9)) == Verdict("x", 1, 0, 1)
    assert _compare("x", host(-1.0005), device(4, 7, 9)).passed
    assert not _compare("x", host(-1.5), device(4, 7, 9)).passed
    assert not _compare("x", host(-1.0005), device(4, 8, 9)).passed
