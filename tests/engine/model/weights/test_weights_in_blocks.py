"""The model with matrices in the file's blocks: the same model to the last bit, in less memory."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType

from paternoster_engine.model.checkpoints.checkpoint import Checkpoint
from paternoster_engine.model.checkpoints.gguf_checkpoint import GgufTensor
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.layers.parts import Quantization
from paternoster_engine.model.layers.strip_linear import StripLinear
from paternoster_engine.model.source import ModelSource
from paternoster_engine.model.step import StepInput
from paternoster_engine.model.weights.gguf_file import StoredTensor
from paternoster_engine.model.weights.mapped_file import MappedFile
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_kernels import RaggedBatch
from paternoster_kernels.blocks import Strips
from paternoster_kernels.cpu.library import load_library

CPU = torch.device("cpu")
PROMPTS, DECODE = RaggedBatch([70, 3], [70, 3], [[1, 2, 3], [4]]), RaggedBatch([1, 1], [71, 4], [[1, 2, 3], [4]])
native = pytest.mark.skipif(load_library() is None, reason="no native operations here")


def _load(checkpoint: Checkpoint, quantization: Quantization, dtype: torch.dtype = torch.bfloat16) -> Decoder:
    return Decoder(checkpoint.config, checkpoint.get_tensor, dtype, CPU, quantization=quantization)


@torch.inference_mode()
def _logits(model: Decoder, *, at_once: bool) -> list[torch.Tensor]:
    """Logits of a step of prompts and of one that decodes."""
    if not at_once:
        model._native_layers = None
    cache, found = allocate_kv_cache(KVPoolShape(5, 32, 0), model.config, torch.bfloat16, CPU), []
    for batch in (PROMPTS, DECODE):
        pairs = zip(batch.seq_lens, batch.query_lens, strict=True)
        step = StepInput(
            token_ids=torch.arange(sum(batch.query_lens)) * 501 % model.config.vocab_size,
            positions=torch.cat([torch.arange(length - new, length) for length, new in pairs]),
            sample_rows=torch.tensor(batch.query_lens).cumsum(0) - 1,
            attention=[model.plan_attention(batch, cache[0])],
        )
        found.append(model.forward(step, cache))
    return found


@native
@pytest.mark.parametrize("at_once", [True, False])
def test_logits_are_those_of_the_dequantised_file(checkpoint: Checkpoint, at_once: bool) -> None:
    in_blocks, made = _load(checkpoint, "auto"), _load(checkpoint, "none")
    assert all(isinstance(linear, StripLinear) for linear in in_blocks.iterate_linears())
    assert not any(isinstance(linear, StripLinear) for linear in made.iterate_linears())
    assert in_blocks._native_layers is not None
    for got, wanted in zip(_logits(in_blocks, at_once=at_once), _logits(made, at_once=at_once), strict=True):
        assert torch.equal(got, wanted)


@native
def test_memory_is_that_of_the_file(checkpoint: Checkpoint, source: ModelSource) -> None:
    """The table of a tied output projection is there once."""
    model = _load(checkpoint, "auto")
    matrices = {linear.weight.data.data_ptr(): linear.weight for linear in model.iterate_linears()}
    assert all(isinstance(strips, Strips) for strips in matrices.values())
    held = sum(strips.data.nbytes + strips.table.nbytes for strips in matrices.values() if isinstance(strips, Strips))
    assert held < 1.01 * source.path.stat().st_size
    assert model._embedding.weight.data.data_ptr() in matrices


@pytest.mark.parametrize(("quantization", "dtype"), [("none", torch.bfloat16), ("auto", torch.float32)], ids=str)
def test_it_is_numbers_where_that_is_asked(
    quantization: Quantization, dtype: torch.dtype, checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        model = _load(checkpoint, quantization, dtype)
    assert not any(isinstance(linear, StripLinear) for linear in model.iterate_linears())
    assert f"matrices kept as {str(dtype)[6:]}: 210 in Q4_1, 1 in Q8_0" in caplog.text


def test_a_type_that_is_not_known_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    kind = GGMLQuantizationType.Q8_K
    tensor = GgufTensor(
        MappedFile(tmp_path / "file"), StoredTensor(kind, (1, 256), np.zeros((1, 292), np.uint8)), "model.gguf: a"
    )
    with pytest.raises(ModelError, match=r"^model.gguf: a is of type Q8_K: must be of Q4_0, Q4_1, .*Q6_K.*, F16"):
        tensor[()]
