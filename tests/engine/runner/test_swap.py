"""Blocks that leave the KV pool and come back are the same, value for value."""

from types import SimpleNamespace
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.core.batch import Batch, ScheduledRequest
from paternoster_engine.core.block_table import BlockTable
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.step import StepInput
from paternoster_engine.runner.kv_pool import HostKVCache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.sampling.sampler import Sampler

LAYERS, BLOCKS = 3, 9
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")]),
]


def pool(device: str) -> tuple[torch.Tensor, ...]:
    return torch.arange(LAYERS * BLOCKS * 24.0, device=device).reshape(LAYERS, BLOCKS, 2, 3, 4).unbind(0)


@pytest.mark.parametrize("device", DEVICES)
@settings(deadline=None, max_examples=40)
@given(
    out=st.permutations(range(1, BLOCKS)).flatmap(
        lambda blocks: st.integers(1, BLOCKS - 1).map(lambda count: blocks[:count])
    ),
    back=st.permutations(range(1, BLOCKS)),
    places=st.permutations(range(12)),
)
def test_what_was_saved_is_loaded_elsewhere(device: str, out: list[int], back: list[int], places: list[int]) -> None:
    cache = pool(device)
    before = [layer.clone() for layer in cache]
    host = HostKVCache(12, cache)
    host.save(list(zip(out, places, strict=False)))
    for layer in cache:
        layer.zero_()
    pairs = list(zip(places, back, strict=False))[: len(out)]
    host.load(pairs)
    for layer, old in zip(cache, before, strict=True):
        for source, target in zip(out, back, strict=False):
            assert torch.equal(layer[target], old[source])
        untouched = [i for i in range(BLOCKS) if i not in back[: len(out)]]
        assert not layer[untouched].any()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_host_memory_of_a_cuda_pool_is_page_locked() -> None:
    assert HostKVCache(2, pool("cuda"))._blocks.is_pinned()


class Overwriting:
    """A model whose step writes block 1 of every layer, and whose logits are for token 7."""

    plan_attention = None
    config = SimpleNamespace(layer_groups=(None,))

    def forward(self, step: StepInput, cache: tuple[torch.Tensor, ...]) -> torch.Tensor:
        for layer in cache:
            layer[1] = -1.0
        return torch.nn.functional.one_hot(torch.full((len(step.sample_rows),), 7), 10).float()


def runner(cache: tuple[torch.Tensor, ...]) -> ModelRunner:
    cpu = torch.device("cpu")
    return ModelRunner(cast(Decoder, Overwriting()), cache, Sampler(10, cpu), HostKVCache(4, cache))


def request() -> Request:
    return Request(RequestSpec("r", [1], SamplingParams(max_tokens=2, temperature=0.0)), block_table=BlockTable([1]))


def test_copies_are_made_before_the_step_out_before_in() -> None:
    cache = pool("cpu")
    first, second = cache[0][1].clone(), cache[0][2].clone()
    execute = runner(cache).execute
    item = ScheduledRequest(request(), 0, 1, samples=True)
    assert execute(Batch(1, swap_out=((2, 0),))).tokens == ()
    # Block 1 leaves, what was block 2 takes its place, and the step overwrites that.
    assert execute(Batch(2, (item,), swap_out=((1, 3),), swap_in=((0, 1),))).tokens == [7]
    assert torch.equal(cache[0][1], torch.full_like(first, -1.0))
    execute(Batch(3, swap_in=((3, 4), (0, 5))))
    assert torch.equal(cache[0][4], first)
    assert torch.equal(cache[0][5], second)
