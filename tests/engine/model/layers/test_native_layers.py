"""All layers in one native call against the same layers one operation at a time."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from paternoster_engine.model.checkpoints.checkpoint import Checkpoint
from paternoster_engine.model.checkpoints.shapes import expected_shapes
from paternoster_engine.model.config import Block, Experts, Layer, ModelConfig, Rope
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.step import StepInput
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_kernels import RaggedBatch
from paternoster_kernels.cpu.library import load_library

CPU = torch.device("cpu")
native = pytest.mark.skipif(load_library() is None, reason="no native operations here")
BATCHES = [
    RaggedBatch([100, 40], [100, 40], [[1, 2, 3, 4], [5, 6]]),
    RaggedBatch([1, 1, 30], [101, 41, 30], [[1, 2, 3, 4], [5, 6], [7]]),
    RaggedBatch([1, 1, 1], [102, 42, 31], [[1, 2, 3, 4], [5, 6], [7]]),
]
"""Prompts; then those decode beside a new one; then all decode."""
BLOCKS = 7
PLAIN = ModelConfig(
    architecture="any",
    name="",
    vocab_size=96,
    hidden_size=160,
    intermediate_size=96,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    context_length=256,
    rope_theta=10_000.0,
    rms_norm_eps=1e-6,
    tied_embeddings=True,
)
ROPE = Rope(10_000.0)
KINDS: dict[str, dict[str, Any]] = {
    "biases": {"block": Block(qkv_bias=True, out_bias=True, mlp_bias=True)},
    "normed heads": {"block": Block(head_norm="each", qkv_bias=True)},
    "norms after, heads normed together": {"block": Block(norms="after", head_norm="all")},
    "norms around, GeLU with a bias": {"block": Block(norms="around", activation="gelu", mlp_bias=True)},
    "scales": {"block": Block(residual_scale=0.3, attention_scale=0.05), "embedding_scale": 3.0, "logit_scale": 0.5},
    "a third of a head turned": {"rotary_dim": 20},
    "windows": {
        "layer_kinds": (Layer(ROPE, window=40), Layer(ROPE), Layer(Rope(500.0), window=20)),
        "block": Block(attention_softcap=3.0, sinks=True),
    },
    "layers without an embedding": {"layer_kinds": (Layer(ROPE), Layer(None), Layer(Rope(500.0)))},
}
"""What families have beyond Llama."""
OTHERS: dict[str, dict[str, Any]] = {
    "experts": {"layer_kinds": (Layer(ROPE, experts=Experts(4, 2, 32, True)), Layer(ROPE), Layer(ROPE))},
    "sizes without tiles": {"intermediate_size": 80},
}


def _decoder(config: ModelConfig, dtype: torch.dtype = torch.bfloat16) -> Decoder:
    """With random weights, norms around one."""
    generator = torch.Generator().manual_seed(4)
    tensors = {
        name: torch.randn(shape, generator=generator) * (0.3 if len(shape) == 1 else 2 / math.sqrt(shape[1]))
        + ("norm" in name)
        for name, shape in expected_shapes(config)
    }
    return Decoder(config, tensors.__getitem__, dtype, CPU)


def _step(model: Decoder, cache: torch.Tensor, batch: RaggedBatch) -> StepInput:
    """Each group of layers in blocks of its own."""
    tokens = torch.Generator().manual_seed(sum(batch.seq_lens))
    pairs = zip(batch.seq_lens, batch.query_lens, strict=True)
    groups = [
        RaggedBatch(batch.query_lens, batch.seq_lens, [[BLOCKS * group + i for i in ids] for ids in batch.block_tables])
        for group in range(len(model.config.layer_groups))
    ]
    return StepInput(
        token_ids=torch.randint(model.config.vocab_size, (sum(batch.query_lens),), generator=tokens),
        positions=torch.cat([torch.arange(length - new, length) for length, new in pairs]),
        sample_rows=torch.tensor(batch.query_lens).cumsum(0) - 1,
        attention=[model.plan_attention(group, cache) for group in groups],
    )


def _cache(model: Decoder, stored: torch.dtype) -> tuple[torch.Tensor, ...]:
    shape = KVPoolShape(BLOCKS * len(model.config.layer_groups), 32, 0)
    return allocate_kv_cache(shape, model.config, stored, CPU)


@torch.inference_mode()
def _is_the_same(model: Decoder, stored: torch.dtype = torch.bfloat16) -> None:
    at_once, one_by_one = _cache(model, stored), _cache(model, stored)
    native = model._native_layers
    assert native is not None
    for batch in BATCHES:
        model._native_layers = native
        got = model.forward(_step(model, at_once[0], batch), at_once)
        model._native_layers = None
        expected = model.forward(_step(model, one_by_one[0], batch), one_by_one)
        assert torch.equal(got, expected)
    assert all(map(torch.equal, at_once, one_by_one))


@native
@pytest.mark.parametrize("stored", [torch.bfloat16, torch.int8], ids=str)
def test_they_are_the_same(checkpoint: Checkpoint, stored: torch.dtype) -> None:
    _is_the_same(Decoder(checkpoint.config, checkpoint.get_tensor, torch.bfloat16, CPU), stored)


@native
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_family_has(kind: str) -> None:
    """And near to what its weights say in float32."""
    config = replace(PLAIN, **KINDS[kind])
    model, exact = _decoder(config), _decoder(config, torch.float32)
    _is_the_same(model)
    [got, wanted] = (
        of.forward(_step(of, cache[0], BATCHES[0]), cache)
        for of, dtype in ((model, torch.bfloat16), (exact, torch.float32))
        for cache in [_cache(of, dtype)]
    )
    assert float((got - wanted).norm()) < 0.15 * float(wanted.norm())


@native
@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_for_one_call(kind: str) -> None:
    assert _decoder(replace(PLAIN, **OTHERS[kind]))._native_layers is None


def test_other_numbers_go_one_by_one(model: Decoder) -> None:
    assert model._native_layers is None
