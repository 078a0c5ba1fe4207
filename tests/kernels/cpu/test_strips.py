"""Products with matrices in blocks of few bits: bit for bit those with the numbers that the blocks say."""

import platform
from dataclasses import dataclass

import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.cpu.random_blocks import BlocksInMemory, random_blocks

from paternoster_kernels import reference
from paternoster_kernels.blocks import FORMATS, GGUF_FORMATS, BlockFormat, Rows, fits_strips
from paternoster_kernels.cpu import matmul, strips
from paternoster_kernels.cpu.instruction_sets import SETS
from paternoster_kernels.cpu.library import load_library
from paternoster_kernels.reference import blocks as oracle

native = pytest.mark.usefixtures("instructions")
names = st.sampled_from(sorted(FORMATS))
BF16 = torch.bfloat16
OTHERS = {found.name for found in SETS if found.machine != platform.machine()}
"""Sets of machines that are emulated here, where a product takes a hundred times as long."""


@dataclass(frozen=True)
class Numbers:
    """Rows that are in no blocks."""

    data: torch.Tensor
    format: BlockFormat | None = None

    @property
    def shape(self) -> torch.Size:
        return self.data.shape

    def read_rows(self, first: int, last: int) -> torch.Tensor:
        return self.data[first:last]


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(BF16)


@pytest.mark.parametrize("name", GGUF_FORMATS)
def test_the_reference_says_what_gguf_says(name: str) -> None:
    found, kind = random_blocks(name, 8, 512, seed=1), GGMLQuantizationType[name]
    assert (found.format.inputs, found.format.bytes) == GGML_QUANT_SIZES[kind]
    assert found.format.number == kind.value
    expected = torch.from_numpy(dequantize(found.data.numpy(), kind))
    assert torch.equal(oracle.dequantize_blocks(found.format, found.data), expected)


@native
@settings(max_examples=40, deadline=None)
@given(
    parts=st.lists(names, min_size=1, max_size=3),
    rows=st.one_of(st.integers(1, 30), st.sampled_from([70, 257, 513])),
    strip_pairs=st.integers(1, 3),
    blocks=st.integers(1, 11),
    threads=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_a_product(
    parts: list[str], rows: int, strip_pairs: int, blocks: int, threads: int, seed: int, instructions: str
) -> None:
    """Matrices of any formats lie below each other, with and without the gate."""
    if instructions in OTHERS and rows > 30:
        # How rows are divided does not depend on how long they are.
        strip_pairs, blocks = 1, 1
    inputs = max(FORMATS[name].inputs for name in parts) * blocks
    if inputs > 1024:
        inputs = 512
    matrices: list[Rows] = [
        random_blocks(name, 32 * strip_pairs, inputs, seed + place) for place, name in enumerate(parts)
    ]
    numbers, x = reference.pack_strips(matrices), _normal(rows, inputs, seed=seed)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        bias = _normal(len(numbers), seed=seed + 1)
        got = strips.strip_matmul(x, strips.pack_strips(matrices), bias)
        gated = strips.strip_gated_matmul(x, strips.pack_strips(matrices, gated=True), bias, gelu=seed % 2 == 0)
        wanted = matmul.packed_matmul(x, matmul.pack_weight(numbers), bias)
        packed = matmul.pack_weight(numbers, gated=True)
        wanted_gated = matmul.packed_gated_matmul(x, packed, bias, gelu=seed % 2 == 0)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(got, wanted)
    assert torch.equal(gated, wanted_gated)


@native
def test_numbers_beside_blocks() -> None:
    matrices = [random_blocks("Q6_K", 48, 256, seed=1), Numbers(_normal(16, 256)), random_blocks("Q8_0", 32, 256, 2)]
    x, numbers = _normal(5, 256, seed=3), reference.pack_strips(matrices)
    packed = strips.pack_strips(matrices)
    assert len(packed.data) == 48 * 210 + 16 * 512 + 32 * 8 * 34
    assert torch.equal(strips.strip_matmul(x, packed), matmul.packed_matmul(x, matmul.pack_weight(numbers)))
    rows = torch.tensor([95, 0, 48, 63, 64, 17, 0])
    assert torch.equal(strips.strip_rows(packed, rows), reference.strip_rows(numbers, rows))


@native
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_rows(name: str) -> None:
    blocks = random_blocks(name, 32, 768, seed=4)
    rows = torch.arange(32)
    assert torch.equal(strips.strip_rows(strips.pack_strips([blocks]), rows), reference.pack_strips([blocks])[rows])


@native
def test_a_matrix_that_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = random_blocks("Q4_K", 96, 256, seed=5)
    whole = strips.pack_strips([blocks])
    monkeypatch.setattr(strips, "PIECE_BYTES", 1)
    assert torch.equal(strips.pack_strips([blocks]).data, whole.data)


@native
def test_nothing_is_written_beyond_the_rows() -> None:
    packed, x = strips.pack_strips([random_blocks("Q4_1", 32, 64, seed=6)]), _normal(5, 64)
    guarded = torch.full((32, 32), 7.0, dtype=BF16)
    pointers = (guarded.data_ptr(), x.data_ptr(), packed.data.data_ptr(), packed.table.data_ptr(), None)
    load_library().packed_matmul(*pointers, 5, 32, 64, 0, 2)
    assert torch.equal(guarded[:5], strips.strip_matmul(x, packed))
    assert bool((guarded[5:] == 7.0).all())


@pytest.mark.parametrize(
    ("outputs", "inputs", "whole"), [([16, 16], 32, True), ([32, 16], 32, False), ([40, 24], 32, False)]
)
def test_what_has_whole_tiles(outputs: list[int], inputs: int, whole: bool) -> None:
    matrices = [
        BlocksInMemory(FORMATS["Q4_0"], torch.zeros(rows, inputs // 32 * 18, dtype=torch.uint8)) for rows in outputs
    ]
    assert fits_strips(matrices) is whole
