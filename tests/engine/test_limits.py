"""Settings that are left out, on each kind of device, and those that a device refuses."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.engine_args import EngineArgs
from paternoster_engine.limits import EngineLimits
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.errors import ModelError

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
MODEL = ModelConfig("llama", "m", 100, 64, 96, 1, 8, 4, 8, 4096, 1e4, 1e-5, tied_embeddings=False)


def resolve(device: torch.device, **settings: Any) -> EngineLimits:
    return EngineLimits.resolve(EngineArgs(**settings), MODEL, device)


@pytest.mark.parametrize(("device", "tokens", "memory"), [(CPU, 512, 512 * 2**20), (CUDA, 8192, 0)])
def test_what_is_left_out_comes_from_device_and_model(device: torch.device, tokens: int, memory: int) -> None:
    assert resolve(device) == EngineLimits(64, tokens, 4096, 32, memory)


@given(st.sampled_from([CPU, CUDA]), st.integers(1, 4096), st.integers(0, 9000), st.integers(0, 2**40))
def test_what_is_given_counts_on_any_device(device: torch.device, seqs: int, more: int, memory: int) -> None:
    given = {"max_num_seqs": seqs, "max_batched_tokens": seqs + more, "kv_cache_memory": memory, "max_model_len": 99}
    limits = resolve(device, block_size=16, **given)
    assert {name: getattr(limits, name) for name in given} == given
    # Every running sequence can advance in a step, whatever the default.
    assert resolve(device, max_num_seqs=seqs).max_batched_tokens >= seqs


@given(st.integers(1, 1024))
def test_cuda_takes_blocks_that_are_tiles(block_size: int) -> None:
    assert resolve(CPU, block_size=block_size).block_size == block_size
    if block_size in (16, 32, 64):
        assert resolve(CUDA, block_size=block_size).block_size == block_size
    else:
        with pytest.raises(ModelError, match=f"block_size is {block_size}: must be one of 16, 32, 64 on cuda"):
            resolve(CUDA, block_size=block_size)


def test_the_context_bounds_a_sequence() -> None:
    with pytest.raises(ModelError, match="max_model_len is 5000: must be at most 4096, the context of m"):
        resolve(CPU, max_model_len=5000)
