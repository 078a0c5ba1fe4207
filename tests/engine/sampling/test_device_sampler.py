"""The sampler on the device's kernels gives the tokens of the plain one."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.sampling.columns import to_signed64
from paternoster_engine.sampling.device_sampler import DeviceSampler
from paternoster_engine.sampling.sampler import Sampler

VOCAB = 70
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")]),
]


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 9), st.sampled_from([torch.float32, torch.bfloat16]))
def test_same_tokens_as_the_plain_sampler(device: str, seed: int, count: int, dtype: torch.dtype) -> None:
    """Rows with all kinds of settings side by side."""
    pick = random.Random(seed)
    logits = (torch.randn(count, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3).to(dtype)
    requests = [
        Request(
            RequestSpec(
                "r",
                [pick.randrange(VOCAB) for _ in range(pick.randint(1, 6))],
                SamplingParams(
                    max_tokens=50,
                    temperature=pick.choice([0.0, 0.5, 1.0, 1.8]),
                    top_k=pick.choice([0, 0, 1, 7]),
                    top_p=pick.choice([1.0, 1.0, 0.3, 0.9, 0.0]),
                    min_p=pick.choice([0.0, 0.0, 0.2]),
                    presence_penalty=pick.choice([0.0, 0.0, 1.3]),
                    frequency_penalty=pick.choice([0.0, 0.0, -0.4]),
                    repetition_penalty=pick.choice([1.0, 1.0, 1.4]),
                    logit_bias=pick.choice([(), (), ((0, -100.0), (69, 2.5), (3, 1.0))]),
                    min_tokens=pick.choice([0, 0, 4]),
                    stop_token_ids=(3, 4),
                ),
                seed=pick.randrange(2**64),
                eos_token_ids=(2,),
            ),
            output=[pick.randrange(VOCAB) for _ in range(pick.randrange(6))],
        )
        for _ in range(count)
    ]
    before = logits.clone()
    expected = Sampler(VOCAB, torch.device("cpu")).sample(logits, requests)
    assert DeviceSampler(torch.device(device)).sample(logits.to(device), requests) == expected
    assert torch.equal(logits, before)


@given(st.lists(st.lists(st.integers(0, VOCAB - 1), max_size=90), min_size=1, max_size=5), st.integers(0, 30))
def test_tables_of_what_requests_have_said(tokens: list[list[int]], beyond: int) -> None:
    vocab = VOCAB + beyond
    sampler = DeviceSampler(torch.device("cpu"))
    assert sampler._count_tokens(tokens, vocab).tolist() == [
        [row.count(token) for token in range(vocab)] for row in tokens
    ]
    bits = sampler._mark_tokens(tokens, vocab)
    assert (bits.dtype, bits.shape) == (torch.int32, (len(tokens), -(-vocab // 32)))
    present = [[(word >> bit) & 1 for word in row for bit in range(32)] for row in bits.tolist()]
    assert [{token for token, there in enumerate(row) if there} for row in present] == list(map(set, tokens))


def test_early_ends_are_ruled_out() -> None:
    logits = torch.tensor([[0.0, 0.0, 9.0, 8.0, 1.0]])
    request = Request(
        RequestSpec("r", [0], SamplingParams(max_tokens=5, temperature=0.0, min_tokens=1), eos_token_ids=(2, 3))
    )
    sampler = DeviceSampler(torch.device("cpu"))
    assert sampler.sample(logits, [request]) == [4]
    request.output.append(4)
    assert sampler.sample(logits, [request]) == [2]


@given(st.integers(0, 2**64 - 1))
def test_seeds_keep_their_bits(seed: int) -> None:
    assert -(2**63) <= to_signed64(seed) < 2**63
    assert to_signed64(seed) % 2**64 == seed
