"""Zero points of GPTQ files as their writers store them: the number that was meant, or a refusal by name."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import save_file

from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.weights.quantized import QuantizedMatrices
from paternoster_engine.model.weights.safetensors_file import read_safetensors
from paternoster_engine.model.weights.stored import InBlocks, StoredRows
from paternoster_kernels.reference.blocks import dequantize_blocks

OUT, IN, GROUP = 24, 64, 32
GPTQMODEL = {"meta": {"quantizer": ["gptqmodel:2.2.0"]}}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False}


def pack_words(fours: torch.Tensor) -> torch.Tensor:
    """``[groups, 8 * n]`` as ``[groups, n]`` unsigned words in int64, the first in the lowest bits."""
    return (fours.long().unflatten(-1, (-1, 8)) << torch.arange(0, 32, 4)).sum(-1)


def less_one_by_word(zeros: torch.Tensor) -> torch.Tensor:
    """Subtract one from a word, which borrows, like GPTQModel."""
    return pack_words(zeros) - 0x11111111


def less_one_by_four_bits(zeros: torch.Tensor) -> torch.Tensor:
    return pack_words(zeros - 1 & 15)


def less_one_overwritten(zeros: torch.Tensor) -> torch.Tensor:
    """Put the ones of -1 in 32 bits over the four bits above, like early AutoGPTQ."""
    fours = (zeros.long() - 1) & 0xFFFFFFFF
    words = torch.zeros(*zeros.shape[:-1], zeros.shape[-1] // 8, dtype=torch.int64)
    for place in range(8):
        words |= fours[..., place::8] << 4 * place & 0xFFFFFFFF
    return words


def as_it_is(zeros: torch.Tensor) -> torch.Tensor:
    return pack_words(zeros)


WRITERS = [less_one_by_word, less_one_by_four_bits, less_one_overwritten]
zero_points = st.lists(st.integers(0, 15), min_size=2 * OUT, max_size=2 * OUT).map(
    lambda drawn: torch.tensor(drawn).view(2, OUT)
)


def read_matrix(folder: Path, words: torch.Tensor, **config: Any) -> tuple[InBlocks, torch.Tensor, torch.Tensor]:
    """The matrix with the zero points ``words``, its numbers ``[OUT, IN]``, and its scales ``[OUT, 2]``."""
    draw = torch.Generator().manual_seed(3)
    numbers = torch.randint(16, (OUT, IN), generator=draw)
    scales = torch.rand(OUT, 2, generator=draw).add(0.1).half()
    tensors = {"qweight": pack_words(numbers).int().T.contiguous(), "scales": scales.T.contiguous()}
    save_file({f"a.{name}": tensor for name, tensor in (tensors | {"qzeros": words.int()}).items()}, folder / "f")
    files = read_safetensors(folder / "f")
    matrix = QuantizedMatrices(GPTQ | config).find_matrix("a", lambda suffix: files.get(f"a.{suffix}"))
    assert matrix is not None
    return matrix, numbers, scales


def check_numbers(folder: Path, words: torch.Tensor, zeros: torch.Tensor, **config: Any) -> None:
    """Assert that numbers and blocks are those with the zero points ``zeros [2, OUT]``."""
    matrix, numbers, scales = read_matrix(folder, words, **config)
    expected = ((numbers.unflatten(1, (2, GROUP)) - zeros.T.unsqueeze(-1)) * scales.float().unsqueeze(-1)).flatten(1)
    assert torch.equal(matrix[()], expected)
    assert torch.equal(matrix[3:21, 5:40], expected[3:21, 5:40])
    rows = StoredRows(matrix)
    assert rows.format is not None
    assert torch.equal(dequantize_blocks(rows.format, rows.read_rows(5, 23)), expected[5:23])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gptq")


@pytest.mark.parametrize("write", WRITERS)
@given(zeros=zero_points)
@example(zeros=torch.zeros(2, OUT, dtype=torch.int64))
@example(zeros=torch.full((2, OUT), 15))
def test_zero_points_are_those_meant_or_refused(write: Any, zeros: torch.Tensor, folder: Path) -> None:
    # What stands last in a word borrows from nothing.
    borrows = (zeros.unflatten(1, (-1, 8))[..., :7] == 0).any()
    ambiguous = pytest.raises(
        ModelError, match="zero points that writers of checkpoint_format 'gptq' store in differen"
    )
    with ambiguous if borrows else nullcontext():
        check_numbers(folder, write(zeros), zeros)


@pytest.mark.parametrize("write", WRITERS)
@given(zeros=zero_points.map(lambda drawn: drawn.clamp(min=1)))
def test_without_zero_every_writer_is_read(write: Any, zeros: torch.Tensor, folder: Path) -> None:
    check_numbers(folder, write(zeros), zeros)
    zeros[:, 7::8] = 0
    check_numbers(folder, write(zeros), zeros)


@given(zeros=zero_points)
def test_words_of_a_named_writer(zeros: torch.Tensor, folder: Path) -> None:
    check_numbers(folder, less_one_by_word(zeros), zeros, **GPTQMODEL)
    check_numbers(folder, as_it_is(zeros), zeros, checkpoint_format="gptq_v2")
    check_numbers(folder, as_it_is(zeros), zeros, format="gptq_v2")


@pytest.mark.parametrize("write", [*WRITERS, as_it_is])
@pytest.mark.parametrize("called", ["gptq", "gptq_v2"])
def test_symmetric_files_under_either_name(write: Any, called: str, tmp_path: Path) -> None:
    middle = torch.full((2, OUT), 8)
    check_numbers(tmp_path, write(middle), middle, sym=True, checkpoint_format=called)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"sym": True}, "a has zero points from 6 to 7, and sym .* is true: must all be 7 .gptq. or all 8 .gptq_v2."),
        ({"checkpoint_format": "marlin"}, "checkpoint_format of quantization_config is 'marlin': must be gptq or gptq"),
        ({"format": ["gptq"]}, r"format of quantization_config is \['gptq'\]: must be gptq or gptq_v2"),
    ],
)
def test_what_contradicts_itself_is_refused(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    zeros = torch.full((2, OUT), 8)
    zeros[1, 3] = 7
    with pytest.raises(ModelError, match=message):
        read_matrix(tmp_path, less_one_by_word(zeros), **config)
