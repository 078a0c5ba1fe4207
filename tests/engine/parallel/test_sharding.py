"""Parts of a model, put together again."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint
from paternoster_engine.model.config import Block, ModelConfig
from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.weights.stored import Cut, LazyTensor
from paternoster_engine.parallel.sharding import BY_INPUTS, BY_OUTPUTS, possible_sizes, shard_config, shard_tensor

MODEL = ModelConfig(
    architecture="llama",
    name="m",
    vocab_size=100,
    hidden_size=64,
    intermediate_size=96,
    num_layers=1,
    num_heads=8,
    num_kv_heads=4,
    head_dim=8,
    context_length=64,
    rope_theta=1e4,
    rms_norm_eps=1e-5,
    tied_embeddings=False,
)
NORMS = ["model.norm.weight", "model.layers.3.input_layernorm.weight", "model.layers.0.self_attn.q_norm.weight"]
sizes = st.integers(1, 8)
lengths = st.integers(1, 5)


def read(config: ModelConfig, name: str, whole: LazyTensor, rank: int, size: int) -> torch.Tensor:
    return shard_tensor(config, name, whole, rank, size)[()]


@settings(deadline=None)
@given(st.sampled_from(BY_OUTPUTS), sizes, lengths, lengths)
def test_outputs_of_all_ranks_are_the_whole(name: str, size: int, rows: int, columns: int) -> None:
    whole = torch.randn(rows * size, columns)
    parts = [read(MODEL, f"model.layers.0.x.{name}.weight", whole, rank, size) for rank in range(size)]
    assert torch.equal(torch.cat(parts), whole)


@settings(deadline=None)
@given(st.sampled_from(BY_INPUTS), sizes, lengths, lengths)
def test_products_of_all_ranks_add_up(name: str, size: int, rows: int, columns: int) -> None:
    whole, x = torch.randn(rows, columns * size, dtype=torch.float64), torch.randn(3, columns * size).double()
    parts = [read(MODEL, f"model.layers.0.x.{name}.weight", whole, rank, size) for rank in range(size)]
    total = sum(own @ part.T for own, part in zip(x.chunk(size, 1), parts, strict=True))
    torch.testing.assert_close(total, x @ whole.T)


@settings(deadline=None)
@given(sizes, st.integers(1, 40), st.sampled_from(["model.embed_tokens.weight", "lm_head.weight"]))
def test_a_vocabulary_of_any_length_is_split_and_padded(size: int, rows: int, name: str) -> None:
    whole = torch.randn(rows, 3)
    parts = [read(MODEL, name, whole, rank, size) for rank in range(size)]
    assert {part.shape for part in parts} == {(-(-rows // size), 3)}
    together = torch.cat(parts)
    assert torch.equal(together[:rows], whole)
    assert not together[rows:].any()


@settings(deadline=None)
@given(sizes, lengths)
def test_a_bias_is_added_once(size: int, rows: int) -> None:
    whole = torch.randn(rows * size)
    outs = [read(MODEL, "model.layers.0.self_attn.o_proj.bias", whole, rank, size) for rank in range(size)]
    assert torch.equal(torch.stack(outs).sum(0), whole)
    keys = [read(MODEL, "model.layers.0.self_attn.k_proj.bias", whole, rank, size) for rank in range(size)]
    assert torch.equal(torch.cat(keys), whole)


@settings(deadline=None)
@given(sizes, lengths)
def test_a_norm_over_all_heads_is_split(size: int, rows: int) -> None:
    config = replace(MODEL, block=Block(head_norm="all"))
    whole = torch.randn(rows * size)
    parts = [read(config, "model.layers.0.self_attn.q_norm.weight", whole, rank, size) for rank in range(size)]
    assert torch.equal(torch.cat(parts), whole)


@settings(deadline=None)
@given(sizes, st.sampled_from(NORMS))
def test_norms_are_on_every_rank(size: int, name: str) -> None:
    whole = torch.randn(6)
    assert torch.equal(read(MODEL, name, whole, size - 1, size), whole)


class Watched:
    """A tensor that records which of its numbers were read."""

    def __init__(self, *shape: int) -> None:
        self.shape, self.read = shape, torch.zeros(shape, dtype=torch.bool)

    def __getitem__(self, cut: Cut) -> torch.Tensor:
        self.read[cut] = True
        return torch.zeros(self.shape)[cut]


@settings(deadline=None)
@given(st.sampled_from((*BY_OUTPUTS, *BY_INPUTS)))
def test_each_number_is_read_by_one_rank(name: str) -> None:
    ranks = [Watched(8, 8) for _ in range(2)]
    for rank, whole in enumerate(ranks):
        read(MODEL, f"model.layers.0.x.{name}.weight", whole, rank, 2)
    assert torch.equal(ranks[0].read, ~ranks[1].read)


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 40))
def test_every_possible_size_divides_what_is_split(kv_heads: int, group: int, columns: int) -> None:
    config = replace(MODEL, num_heads=kv_heads * group, num_kv_heads=kv_heads, intermediate_size=columns)
    for size in range(1, 50):
        if size in possible_sizes(config):
            part = shard_config(config, size)
            assert (part.num_heads * size, part.num_kv_heads * size) == (config.num_heads, kv_heads)
            assert part.intermediate_size * size == columns
            assert (part.vocab_size, part.head_dim) == (config.vocab_size, config.head_dim)
        else:
            assert kv_heads % size or columns % size
            with pytest.raises(UnsupportedModelError, match=f"tensor_parallel_size is {size}: must be one of 1"):
                shard_config(config, size)


def test_what_the_default_model_can_be_split_over(checkpoint: Checkpoint) -> None:
    assert possible_sizes(checkpoint.config) == [1, 3]
    with pytest.raises(UnsupportedModelError, match="tensor_parallel_size is 2: must be one of 1, 3 for Smollm2"):
        build_engine(EngineArgs(tensor_parallel_size=2))
