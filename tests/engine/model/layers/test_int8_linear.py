"""The model with int8 matrices: near to itself, the same in any company, and served by one flag."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.block_table import BlockTable
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.layers.int8_linear import Int8Linear
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.model.weights import stored
from paternoster_engine.model.weights.stored import StackedTensors
from paternoster_engine.parallel.rank import load_model
from paternoster_engine.process_group import ALONE
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.step_input import host_step

CPU = torch.device("cpu")
TEXT = """A paternoster is a lift that never stops. Its cars go up on one side and down on the other, and riders step on
and off while they move. The first one was built in Liverpool in 1868, and hundreds were at work in offices and
universities of Europe a century later. A car holds two people, and a chain of them carries more in an hour than a
lift of the same size that stops at every floor, because nobody waits for the doors."""


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


@given(cuts=st.lists(st.integers(1, 40), min_size=1, max_size=3), rows=st.integers(1, 50))
def test_rows_may_come_from_files_piece_by_piece(cuts: list[int], rows: int) -> None:
    parts = [torch.randn(count, 64, generator=torch.Generator().manual_seed(count)) for count in cuts]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stored, "PIECE_BYTES", rows * 64 * 4)
        found = Int8Linear(StackedTensors(parts, torch.bfloat16, CPU))
    whole = Int8Linear(torch.cat(parts).to(torch.bfloat16))
    assert found.weight.equal(whole.weight)
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(rows))
    assert found(x).equal(whole(x))


@torch.inference_mode()
def _log_probabilities(model: Decoder, tokens: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Log probabilities of the token after each of ``tokens`` but the last: ``(tokens - 1, vocabulary)``."""
    blocks = -(-len(tokens) // 32)
    cache = allocate_kv_cache(KVPoolShape(1 + blocks, 32, 0), model.config, dtype, CPU)
    params = SamplingParams(max_tokens=1, prompt_logprobs=0)
    request = Request(RequestSpec("text", tokens, params), block_table=BlockTable(list(range(1, 1 + blocks))))
    step = host_step([ScheduledRequest(request, 0, len(tokens), False)])
    logits: torch.Tensor = model.forward(step.on_device(cache[0], model.plan_attention), cache)
    return logits.float().log_softmax(-1)


def test_the_model_says_nearly_what_it_said(model: Decoder, checkpoint: Checkpoint, tokenizer: Tokenizer) -> None:
    """In mean divergence: how many best tokens are the same depends on the processor, as many are near another."""
    args = EngineArgs(quantization="int8", dtype="bfloat16")
    int8 = load_model(args, checkpoint, torch.bfloat16, CPU, ALONE)
    assert all(isinstance(linear, Int8Linear) for linear in int8.iterate_linears())
    tokens = tokenizer.encode(TEXT)
    got, wanted = _log_probabilities(int8, tokens, torch.bfloat16), _log_probabilities(model, tokens, torch.float32)
    divergence = torch.nn.functional.kl_div(got, wanted, log_target=True, reduction="batchmean")
    assert float(divergence) < 0.1  # 0.05 over a thousand tokens of prose, and bfloat16 alone has 0.001
