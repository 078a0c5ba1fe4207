"""Matrices of few bits in safetensors files: the numbers that their formats say, as numbers and in blocks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.checkpoints.shapes import check_shapes
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.layers.parts import Quantization
from paternoster_engine.model.source import resolve_source
from paternoster_engine.model.step import StepInput
from paternoster_engine.model.weights.quantized import QuantizedMatrices
from paternoster_engine.model.weights.safetensors_file import read_safetensors
from paternoster_engine.model.weights.stored import InBlocks, StoredRows, TensorSlice
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_kernels import RaggedBatch
from paternoster_kernels.cpu.library import load_library
from paternoster_kernels.reference.blocks import dequantize_blocks

OUT, IN, GROUP = 48, 256, 64
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
QUANTIZATIONS: tuple[Quantization, ...] = ("auto", "none")
Tensors = dict[str, torch.Tensor]


def _words(numbers: torch.Tensor, order: tuple[int, ...] = tuple(range(8))) -> torch.Tensor:
    """``[..., 8 * n]`` numbers of four bits as ``[..., n]`` words, number ``order[0]`` in the lowest bits."""
    eights = numbers.long().unflatten(-1, (-1, 8))[..., list(order)]
    words = (eights << torch.arange(0, 32, 4)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).int()


def _drawn(scale: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Numbers, zero points, scales, and what they say."""
    draw = torch.Generator().manual_seed(3)
    numbers = torch.randint(16, (OUT, IN), generator=draw)
    zeros = torch.randint(1, 16, (OUT, IN // GROUP), generator=draw)
    scales = torch.rand(OUT, IN // GROUP, generator=draw).add(0.1).to(scale)
    expected = (numbers.unflatten(1, (-1, GROUP)) - zeros.unsqueeze(-1)) * scales.float().unsqueeze(-1)
    return numbers, zeros, scales, expected.flatten(1)


def _compressed() -> tuple[dict[str, Any], Tensors, torch.Tensor]:
    numbers, zeros, scales, expected = _drawn(torch.bfloat16)
    packed = {"weight_packed": _words(numbers), "weight_zero_point": _words(zeros.T).T.contiguous()}
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    return config, packed | {"weight_scale": scales}, expected


def _symmetric() -> tuple[dict[str, Any], Tensors, torch.Tensor]:
    config, packed, _ = _compressed()
    numbers, _, scales, _ = _drawn(torch.bfloat16)
    expected = (numbers.unflatten(1, (-1, GROUP)) - 8) * scales.float().unsqueeze(-1)
    del packed["weight_zero_point"]
    return config, packed, expected.flatten(1)


def _gptq() -> tuple[dict[str, Any], Tensors, torch.Tensor]:
    numbers, zeros, scales, expected = _drawn(torch.float16)
    packed = {"qweight": _words(numbers).T.contiguous(), "qzeros": _words(zeros.T - 1), "scales": scales.T.contiguous()}
    return {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False}, packed, expected


def _awq() -> tuple[dict[str, Any], Tensors, torch.Tensor]:
    numbers, zeros, scales, expected = _drawn(torch.float16)
    packed = {"qweight": _words(numbers.T, AWQ_ORDER), "qzeros": _words(zeros.T, AWQ_ORDER)}
    return {"quant_method": "awq", "bits": 4}, packed | {"scales": scales.T.contiguous()}, expected


def _fp8(scales: torch.Tensor, config: dict[str, Any], suffix: str) -> tuple[dict[str, Any], Tensors, torch.Tensor]:
    numbers = torch.randn(OUT, IN, generator=torch.Generator().manual_seed(4)).to(torch.float8_e4m3fn)
    rows, columns = (-(-size // count) for size, count in zip((OUT, IN), scales.shape, strict=True))
    rows, columns = config.get("weight_block_size", (rows, columns))
    wide = scales.repeat_interleave(rows, 0).repeat_interleave(columns, 1)[:OUT, :IN]
    return {"quant_method": "fp8", **config}, {"weight": numbers, f"weight_{suffix}": scales}, numbers.float() * wide


def _fp8_blocks() -> tuple[dict[str, Any], Tensors, torch.Tensor]:
    return _fp8(torch.rand(2, 3).add(0.1), {"weight_block_size": [32, 96]}, "scale_inv")


def _fp8_outputs() -> tuple[dict[str, Any], Tensors, torch.Tensor]:
    return _fp8(torch.rand(OUT, 1).add(0.1), {}, "scale")


MAKERS = [_compressed, _symmetric, _gptq, _awq, _fp8_blocks, _fp8_outputs]


def _matrix(config: dict[str, Any], tensors: Tensors, folder: Path) -> InBlocks | None:
    save_file({f"a.{name}": tensor for name, tensor in tensors.items()}, folder / "f")
    files = read_safetensors(folder / "f")
    return QuantizedMatrices(config).find_matrix("a", lambda suffix: files.get(f"a.{suffix}"))


@pytest.mark.parametrize("make", MAKERS)
def test_numbers_and_blocks(make: Callable[[], Any], tmp_path: Path) -> None:
    config, tensors, expected = make()
    matrix = _matrix(config, tensors, tmp_path)
    assert matrix is not None
    assert torch.equal(matrix[()], expected)
    assert torch.equal(matrix[13:39, 5:200], expected[13:39, 5:200])
    for stored, wanted in ((matrix, expected[11:43]), (TensorSlice(matrix, 1, 96, 64), expected[11:43, 96:160])):
        rows = StoredRows(stored)
        assert rows.format is not None
        assert torch.equal(dequantize_blocks(rows.format, rows.read_rows(11, 43)), wanted)


def test_numbers_alone_are_not_its_own(tmp_path: Path) -> None:
    assert _matrix({}, {"weight": torch.ones(4, 4)}, tmp_path) is None


@pytest.mark.parametrize(
    ("quantization_config", "named"),
    [
        ({"quant_method": "bitsandbytes"}, "bitsandbytes"),
        ({"quant_method": "gptq", "bits": 8}, "'bits': 8"),
        ({"quant_method": "gptq", "bits": 4, "desc_act": True}, "'desc_act': True"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "nvfp4-pack"),
        ({"quant_method": ["gptq"]}, "gptq"),
        ({"quant_method": None}, "None"),
    ],
)
def test_what_is_not_served_is_named_with_what_is(quantization_config: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=rf"quantization_config is .*{named}.*: must be of awq .4 bits., gptq"):
        QuantizedMatrices(quantization_config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scales": torch.ones(5, OUT, dtype=torch.float16)}, "5 groups of 256 inputs"),
        ({"qweight": torch.ones(IN // 8, OUT)}, "of F32 in the shape .*: must be a matrix of I32"),
        ({"qzeros": None}, "a has no matrix qzeros"),
        ({"qzeros": torch.ones(4, 5).int()}, r"zero points of I32 in the shape .4, 5.: must be .* .4, 6."),
    ],
)
def test_tensors_that_do_not_belong_together(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    config, tensors, _ = _gptq()
    with pytest.raises(ModelError, match=message):
        _matrix(config, {n: t for n, t in (tensors | change).items() if t is not None}, tmp_path)


_ORDER = torch.arange(IN).flip(0).div(GROUP, rounding_mode="floor").int()
_ASYMMETRIC = {"config_groups": {"all": {"weights": {"num_bits": 4, "symmetric": False, "group_size": GROUP}}}}
_EIGHT = {"config_groups": {"all": {"weights": {"num_bits": 8}}}}
_SCALES = "weight_scale_inv"


@pytest.mark.parametrize(
    ("make", "config", "change", "message"),
    [
        (_gptq, {"quant_method": "fp8"}, {}, "a has a qweight, and .*quant_method .* is 'fp8': must be awq or gptq"),
        (_compressed, {"quant_method": "awq"}, {}, "a has a weight_packed, .* is 'awq': must be compressed-tensors"),
        (
            _gptq,
            {"group_size": 128},
            {},
            "groups of 64 inputs, and config.json's group_size is .128.: must be the same",
        ),
        (_awq, {"group_size": -1}, {}, "groups of 64 inputs, and config.json's group_size is .-1.: must be the same"),
        (_gptq, {}, {"g_idx": _ORDER}, "another order than its inputs .g_idx.: must be as desc_act false"),
        (_compressed, _ASYMMETRIC, {"weight_zero_point": None}, "a has no weight_zero_point: must be there"),
        (_compressed, _EIGHT, {}, "weights of quantization_config are .*'num_bits': 8.*: must be of 4 bits"),
        (_fp8_blocks, {}, {_SCALES: torch.ones(3, 2)}, r"\[3, 2\] scales for \[48, 256\] numbers: must be one"),
        (_fp8_blocks, {}, {_SCALES: torch.ones(0, 3)}, r"\[0, 3\] scales for \[48, 256\] numbers: must be one"),
        (_fp8_blocks, {}, {_SCALES: torch.ones(2, 3).char()}, "scales of I8: must be of F32 or BF16 or F16"),
        (_fp8_blocks, {}, {_SCALES: torch.ones(2, 3).byte()}, "scales of U8: must be of F32 or BF16 or F16"),
        (_fp8_blocks, {}, {_SCALES: None}, "a is of F8_E4M3 without scales: must have a weight_scale_inv"),
        (_fp8_blocks, {}, {"weight": torch.ones(48, 256).to(torch.float8_e5m2)}, "scales for numbers of F8_E5M2 in"),
    ],
)
def test_config_and_tensors_that_say_different_things(
    make: Callable[[], Any], config: dict[str, Any], change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    own, tensors, _ = make()
    with pytest.raises(ModelError, match=message):
        _matrix(own | config, {n: t for n, t in (tensors | change).items() if t is not None}, tmp_path)


def test_an_order_of_groups_that_is_that_of_the_inputs(tmp_path: Path) -> None:
    config, tensors, expected = _gptq()
    matrix = _matrix(config, tensors | {"g_idx": _ORDER.flip(0)}, tmp_path)
    assert matrix is not None
    assert torch.equal(matrix[()], expected)


def test_a_config_of_quantization_that_is_no_object(tmp_path: Path) -> None:
    _write_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": "awq"}))
    with pytest.raises(ModelError, match="quantization_config is 'awq': must be an object"):
        open_checkpoint(resolve_source(tmp_path.as_uri()))


def _write_model(folder: Path) -> None:
    """A Llama of one layer whose queries, keys and values are in AWQ, and whose MLP is in numbers."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = {"model_type": "llama", "num_hidden_layers": 1, "head_dim": 32, "vocab_size": 64, "rms_norm_eps": 1e-5}
    config |= {"max_position_embeddings": 64, "rope_theta": 1e4, "tie_word_embeddings": True, **sizes}
    quantization_config = {"quant_method": "awq", "bits": 4, "version": "gemm", "group_size": 32}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantization_config}))
    (folder / "tokenizer.json").write_text("{}")
    draw = torch.Generator().manual_seed(1)
    prefix, tensors = "model.layers.0.", {"model.embed_tokens.weight": torch.randn(64, 64, generator=draw)}
    for name in ("model.norm", prefix + "input_layernorm", prefix + "post_attention_layernorm"):
        tensors[f"{name}.weight"] = torch.ones(64)
    for name, outputs, inputs in (("gate", 96, 64), ("up", 96, 64), ("down", 64, 96)):
        tensors[f"{prefix}mlp.{name}_proj.weight"] = torch.randn(outputs, inputs, generator=draw) / 8
    for name, outputs in (("q", 64), ("k", 32), ("v", 32), ("o", 64)):
        numbers = torch.randint(16, (64, outputs), generator=draw)
        own = {"qweight": _words(numbers, AWQ_ORDER), "qzeros": _words(torch.full((2, outputs), 7), AWQ_ORDER)}
        own["scales"] = torch.rand(2, outputs, generator=draw).half() / 32
        tensors |= {f"{prefix}self_attn.{name}_proj.{part}": tensor for part, tensor in own.items()}
    save_file(tensors, folder / "model.safetensors")


@torch.inference_mode()
def test_a_model_that_is_half_in_blocks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if load_library() is None:
        pytest.skip("no native operations here")
    _write_model(tmp_path)
    checkpoint = open_checkpoint(resolve_source(tmp_path.as_uri()))
    check_shapes(checkpoint)
    device, found = torch.device("cpu"), []
    with caplog.at_level("INFO"):
        for quantization in QUANTIZATIONS:
            model = Decoder(checkpoint.config, checkpoint.get_tensor, torch.bfloat16, device, quantization=quantization)
            cache = allocate_kv_cache(KVPoolShape(3, 32, 0), model.config, torch.bfloat16, device)
            batch = RaggedBatch([40], [40], [[1, 2]])
            tokens, plan = torch.arange(40), [model.plan_attention(batch, cache[0])]
            found.append(model.forward(StepInput(tokens, tokens, tokens, plan), cache))
    assert torch.equal(*found)
    assert "matrices kept as they are: 4 in INT4_F16" in caplog.text
