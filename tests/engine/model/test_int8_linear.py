"""The model with int8 matrices: near to itself, the same in any company, and served by one flag."""

import pytest
import torch

from paternoster_contract.engine_args import EngineArgs
from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.request import Request
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.checkpoint import Checkpoint
from paternoster_engine.model.int8_linear import Int8Linear
from paternoster_engine.model.llama import Llama
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.parallel.rank import load_model
from paternoster_engine.parallel.ranks import ALONE
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.step_input import host_step

CPU = torch.device("cpu")
TEXT = "A paternoster is a lift that never stops. Its cars go up on one side and down on the other, and riders step on"


@pytest.mark.parametrize("rows", [1, 5, 33])
def test_is_near_the_matrix_it_was_made_from(rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(96, 128, generator=generator).to(torch.bfloat16)
    x = torch.randn(rows, 128, generator=generator).to(torch.bfloat16)
    linear = Int8Linear(weight)
    assert (linear.in_features, linear.out_features) == (128, 96)
    exact = x.double() @ weight.double().T
    error = (linear(x).double() - exact).pow(2).mean().sqrt()
    assert float(error) < 0.02 * float(exact.pow(2).mean().sqrt())


@torch.inference_mode()
def _best(model: Llama, tokens: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Most likely token after each of ``tokens``."""
    cache = allocate_kv_cache(KVPoolShape(2, 32, 0), model.config, dtype, CPU)
    request = Request("text", tokens, SamplingParams(max_tokens=1, prompt_logprobs=0), block_ids=[1, 2])
    step = host_step([ScheduledRequest(request, 0, len(tokens), False)])
    return model.forward(step.on_device(cache[0], model.plan_attention), cache).argmax(-1)


def test_the_model_says_nearly_always_what_it_said(model: Llama, checkpoint: Checkpoint, tokenizer: Tokenizer) -> None:
    args = EngineArgs(quantization="int8", dtype="bfloat16")
    int8 = load_model(args, checkpoint, torch.bfloat16, CPU, ALONE)
    assert all(isinstance(linear, Int8Linear) for linear in int8.linears())
    tokens = tokenizer.encode(TEXT)
    same = _best(int8, tokens, torch.bfloat16) == _best(model, tokens, torch.float32)
    assert float(same.float().mean()) >= 0.75
