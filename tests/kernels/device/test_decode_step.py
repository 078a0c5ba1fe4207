"""A captured decode step made of the device's kernels gives the tokens of the references, padding and all."""

from typing import Any

import pytest
import torch

from paternoster_engine.core.batch import Batch, ScheduledRequest
from paternoster_engine.core.request import Request
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model import parts
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.runner import step_input
from paternoster_engine.runner.cuda import decode_step
from paternoster_engine.runner.cuda.graph_runner import GraphRunner
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache, kv_block_bytes
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.sampling import device_sampler
from paternoster_kernels import OPS
from paternoster_kernels.registry import TRITON_MODULES, triton_op

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


def weights(name: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    if "norm" in name:
        return 1 + 0.1 * torch.randn(64, generator=generator)
    part = name.split(".")[-2]
    rows = {"embed_tokens": 130, "q_proj": 256, "k_proj": 128, "v_proj": 128}.get(part, 64)
    return torch.randn(rows, 256 if part == "o_proj" else 64, generator=generator) / 8


def drive(device: torch.device, captured: bool) -> list[list[int]]:
    """Four requests at block edges; one leaves and another joins on the way. Steps are submitted two at a time."""
    model = Decoder(CONFIG, weights, torch.float32, device)
    shape = KVPoolShape.fit(CONFIG, BLOCK_SIZE, torch.float32, 12 * kv_block_bytes(CONFIG, BLOCK_SIZE, torch.float32))
    cache = allocate_kv_cache(shape, CONFIG, torch.float32, device)
    plain = ModelRunner(model, cache, device_sampler.DeviceSampler(device))
    graphs = GraphRunner(plain, model, cache, max_num_seqs=3, max_model_len=64) if captured else None
    kinds: list[dict[str, Any]] = [{"temperature": 0.0}, {"top_k": 20}, {"temperature": 0.7, "top_p": 0.9}, {}]
    requests = [
        Request(f"r{i}", [(i + 1) * (j + 3) % 130 for j in range(length)], SamplingParams(max_tokens=9, **params))
        for i, (length, params) in enumerate(zip((15, 16, 2, 31), kinds, strict=True))
    ]
    for number, request in enumerate(requests):
        request.seed = 2**63 + number
        request.block_ids = list(range(1 + 3 * number, 4 + 3 * number))

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


def test_same_tokens_as_the_references(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = (parts, decode_step, device_sampler, step_input)
    for module in modules:
        monkeypatch.setattr(module, "pick", lambda op, device: OPS[op])
    expected = drive(torch.device("cpu"), captured=False)
    assert [len(output) for output in expected] == [5, 3, 3, 3]
    for module in modules:
        monkeypatch.setattr(module, "pick", lambda op, device: triton_op(op) if op in TRITON_MODULES else OPS[op])
    assert drive(device, captured=True) == expected
