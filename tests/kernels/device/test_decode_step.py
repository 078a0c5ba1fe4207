"""A captured decode step made of the device's kernels gives the tokens of the references, padding and all."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from paternoster_engine.core.batch import Batch, ScheduledRequest
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.checkpoints.shapes import expected_shapes
from paternoster_engine.model.config import Block, Experts, Layer, ModelConfig
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.layers import experts, parts
from paternoster_engine.runner import step_input
from paternoster_engine.runner.cuda import decode_step
from paternoster_engine.runner.cuda.graph_runner import GraphRunner
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache, kv_block_bytes
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.sampling import device_sampler
from paternoster_kernels import OPS
from paternoster_kernels.registry import TRITON_MODULES, Op, triton_op

BLOCK_SIZE = 16
CONFIG = ModelConfig(
    architecture="llama",
    name="tiny",
    vocab_size=130,
    hidden_size=64,
    intermediate_size=64,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    context_length=64,
    rope_theta=10_000.0,
    rms_norm_eps=1e-5,
    tied_embeddings=True,
)


EXPERTS = replace(
    CONFIG,
    block=Block(qkv_bias=True, out_bias=True, mlp_bias=True, router_bias=True, sinks=True, activation="clamped_swiglu"),
    num_layers=2,
    layer_kinds=tuple(
        Layer(rope, window, Experts(5, 2, 48, normalized=True)) for rope, window in ((None, 9), (CONFIG.rope, None))
    ),
)
"""Model like gpt-oss, with a layer that is not rotated."""


def weights_of(config: ModelConfig) -> Callable[[str], torch.Tensor]:
    shapes = dict(expected_shapes(config))

    def weight(name: str) -> torch.Tensor:
        drawn = torch.randn(shapes[name], generator=torch.Generator().manual_seed(sum(map(ord, name))))
        return 1 + 0.1 * drawn if "norm" in name else drawn / 8

    return weight


def drive(config: ModelConfig, device: torch.device, captured: bool) -> list[list[int]]:
    """Four requests at block edges; one leaves and another joins on the way. Steps are submitted two at a time."""
    model = Decoder(config, weights_of(config), torch.float32, device)
    # Three rows of a block table for each request, with a block for each group of layers.
    held = 3 * len(config.layer_groups)
    memory = 4 * held * kv_block_bytes(config, BLOCK_SIZE, torch.float32)
    shape = KVPoolShape.fit_memory(config, BLOCK_SIZE, torch.float32, memory)
    cache = allocate_kv_cache(shape, config, torch.float32, device)
    plain = ModelRunner(model, cache, device_sampler.DeviceSampler(device))
    graphs = GraphRunner(plain, model, cache, max_num_seqs=3, max_model_len=64) if captured else None
    kinds: list[dict[str, Any]] = [{"temperature": 0.0}, {"top_k": 20}, {"temperature": 0.7, "top_p": 0.9}, {}]
    requests = [
        Request(
            RequestSpec(
                f"r{i}", [(i + 1) * (j + 3) % 130 for j in range(length)], SamplingParams(max_tokens=9, **params)
            )
        )
        for i, (length, params) in enumerate(zip((15, 16, 2, 31), kinds, strict=True))
    ]
    for number, request in enumerate(requests):
        request.spec = replace(request.spec, seed=2**63 + number)
        request.block_table.block_ids = list(range(1 + held * number, 1 + held * (number + 1)))

    def items(running: list[Request], ahead: int) -> Batch:
        chosen = (ScheduledRequest(r, r.num_tokens - 1 + ahead, 1, samples=True) for r in running)
        return Batch(1, tuple(chosen))

    prompts = Batch(0, tuple(ScheduledRequest(r, 0, r.num_prompt, samples=True) for r in requests))
    for request, token in zip(requests, plain.execute(prompts).tokens, strict=True):
        assert token is not None
        request.output.append(token)
    for running in (requests[:3], [requests[3], requests[0]]):
        if graphs is None:
            for _ in range(2):
                for request, token in zip(running, plain.execute(items(running, 0)).tokens, strict=True):
                    request.output.append(token)
            continue
        first, second = (graphs.submit(items(running, ahead)) for ahead in range(2))
        for result in (first.result(), second.result()):
            for request, token in zip(running, result.tokens, strict=True):
                request.output.append(token)
    assert not any(layer[0].any() for layer in cache)
    return [request.output for request in requests]


@pytest.mark.parametrize("config", [CONFIG, EXPERTS], ids=["llama", "experts"])
def test_same_tokens_as_the_references(
    config: ModelConfig, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use(op_of: Callable[[str], Op]) -> None:
        for module in (parts, decode_step, device_sampler, step_input):
            monkeypatch.setattr(module, "pick_kernel", lambda op, device: op_of(op))

    use(OPS.__getitem__)
    expected = drive(config, torch.device("cpu"), captured=False)
    assert [len(output) for output in expected] == [5, 3, 3, 3]
    use(lambda op: triton_op(op) if op in TRITON_MODULES else OPS[op])
    # As on CUDA, in the interpreter too.
    monkeypatch.setattr(experts, "OneByOne", experts.Grouped)
    assert drive(config, device, captured=True) == expected
