"""Experts in MXFP4: numbers as transformers and llama.cpp read them, and a whole model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tests.engine.families import tiny_families as tiny
from tests.engine.families.test_families import build, logits

from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.families.mxfp4 import VALUES, from_mxfp4


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_numbers_are_those_of_transformers(outputs: int, blocks: int, seed: int) -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(seed)
    packed = torch.randint(256, (1, outputs, blocks, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(100, 140, (1, outputs, blocks), generator=generator, dtype=torch.uint8)
    theirs = convert_moe_packed_tensors(packed, scales, dtype=torch.bfloat16)[0].T
    assert torch.equal(from_mxfp4(packed[0], scales[0]), theirs)


def test_numbers_are_those_of_gguf() -> None:
    """Whose blocks have the first half of their numbers in the lower bits, and the second in the upper."""
    rows = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    stored = quantize(rows, GGMLQuantizationType.MXFP4).reshape(3, 2, 17)
    numbers = np.concatenate((stored[..., 1:] & 15, stored[..., 1:] >> 4), -1)
    blocks = torch.from_numpy(numbers[..., ::2] | numbers[..., 1::2] << 4)
    got = from_mxfp4(blocks, torch.from_numpy(stored[..., 0].copy()))
    expected = dequantize(stored.reshape(3, -1), GGMLQuantizationType.MXFP4)
    np.testing.assert_array_equal(got.float().numpy(), expected)


@pytest.mark.parametrize(
    ("blocks", "scales"),
    [
        (torch.zeros(2, 3, 16), torch.zeros(2, 3, dtype=torch.uint8)),
        (torch.zeros(2, 3, 15, dtype=torch.uint8), torch.zeros(2, 3, dtype=torch.uint8)),
        (torch.zeros(2, 3, 16, dtype=torch.uint8), torch.zeros(2, 4, dtype=torch.uint8)),
    ],
)
def test_other_shapes_and_types_are_refused(blocks: torch.Tensor, scales: torch.Tensor) -> None:
    with pytest.raises(ModelError, match="MXFP4"):
        from_mxfp4(blocks, scales)


def pack(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``[experts, outputs, inputs]`` as blocks, scales, and the numbers that these are."""
    grouped = weight.unflatten(-1, (-1, 32))
    exponents = torch.floor(torch.log2(grouped.abs().amax(-1).clamp(min=2.0**-60))) - 2
    values = torch.tensor(VALUES)
    nearest = (torch.ldexp(grouped, -exponents.unsqueeze(-1)).unsqueeze(-1) - values).abs().argmin(-1)
    numbers = torch.ldexp(values[nearest], exponents.unsqueeze(-1)).flatten(-2)
    blocks = (nearest[..., ::2] | nearest[..., 1::2] << 4).to(torch.uint8)
    return blocks, (exponents + 127).to(torch.uint8), numbers


def test_a_model_as_it_is_published(theirs: Callable[[str], Any], tmp_path: Path) -> None:
    """Experts in MXFP4, output by output; transformers has the same numbers, input by input."""
    model = tiny.make("gpt_oss, published")
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    for layer in range(model.config.num_hidden_layers):
        for part in ("gate_up_proj", "down_proj"):
            name = f"model.layers.{layer}.mlp.experts.{part}"
            blocks, scales, numbers = pack(tensors.pop(name).mT)
            tensors |= {f"{name}_blocks": blocks.contiguous(), f"{name}_scales": scales.contiguous()}
            model.get_parameter(name).data = numbers.mT
    save_file(tensors, path)
    (tmp_path / "tokenizer.json").write_text("{}")
    prompt = torch.randint(tiny.VOCAB, (70,), generator=torch.Generator().manual_seed(2)).tolist()
    with torch.inference_mode():
        expected = model(torch.tensor([prompt])).logits[0, -1:]
    got = logits(build(tiny.open_model(tmp_path)), prompt, (33,))
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)


def test_an_expert_that_is_not_there_is_named(theirs: Callable[[str], Any], tmp_path: Path) -> None:
    theirs("gpt_oss").save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.1.mlp.experts.down_proj"
    tensors[name] = tensors[name][:4].contiguous()
    save_file(tensors, path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"layers.1.mlp.experts.down_proj has the shape .*: must be of more than 4"):
        tiny.open_model(tmp_path)
