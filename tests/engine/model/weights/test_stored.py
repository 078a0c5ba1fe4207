"""Tensors in files, read in parts: the same numbers as when they are read as a whole, and no others."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from paternoster_engine.model.checkpoints.gguf_checkpoint import GgufTensor, RotateHalfRows
from paternoster_engine.model.weights import mapped_file
from paternoster_engine.model.weights.gguf_file import StoredTensor
from paternoster_engine.model.weights.mapped_file import MappedFile
from paternoster_engine.model.weights.safetensors_file import FLOATS, read_safetensors
from paternoster_engine.model.weights.stored import LazyTensor, StoredRows, TensorSlice, block_format, read_into

ROWS, COLUMNS = 24, 96
KINDS = [getattr(GGMLQuantizationType, name) for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0")]
bounds = st.tuples(st.integers(0, ROWS), st.integers(0, ROWS), st.integers(0, COLUMNS), st.integers(0, COLUMNS))
WHOLE = np.random.default_rng(5).standard_normal((ROWS, COLUMNS)).astype(np.float32)


@pytest.fixture(autouse=True)
def pages_are_let_go_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_file, "RELEASE_BYTES", 1)


def cut(tensor: LazyTensor, bounds: tuple[int, int, int, int]) -> torch.Tensor:
    return tensor[slice(bounds[0], bounds[1]), slice(bounds[2], bounds[3])]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> MappedFile:
    path = tmp_path_factory.mktemp("mapped") / "file"
    path.write_bytes(b"x" * 10**5)
    return MappedFile(path)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(KINDS), bounds)
def test_a_cut_of_a_gguf_tensor(
    file: MappedFile, kind: GGMLQuantizationType, bounds: tuple[int, int, int, int]
) -> None:
    data = quantize(WHOLE, kind)
    tensor = GgufTensor(file, StoredTensor(kind, (ROWS, COLUMNS), data), "it")
    assert torch.equal(cut(tensor, bounds), cut(torch.from_numpy(dequantize(data, kind).copy()), bounds))


@settings(deadline=None)
@given(bounds)
def test_a_cut_of_rows_in_rotary_pairs(bounds: tuple[int, int, int, int]) -> None:
    """Row ``half * 4 + pair`` of a head of eight is the file's row ``pair * 2 + half``."""
    order = [head * 8 + pair * 2 + half for head in range(3) for half in range(2) for pair in range(4)]
    whole = torch.from_numpy(WHOLE)
    assert torch.equal(cut(RotateHalfRows(whole, 8), bounds), cut(whole[order], bounds))


@settings(deadline=None)
@given(st.sampled_from([0, 1]), st.integers(0, 120), st.integers(0, 120), bounds)
def test_a_cut_of_a_part(dim: int, first: int, length: int, bounds: tuple[int, int, int, int]) -> None:
    whole = torch.from_numpy(WHOLE)
    shape = list(whole.shape)
    shape[dim] = first + length
    padded = torch.zeros(max(shape[0], ROWS), max(shape[1], COLUMNS))
    padded[:ROWS, :COLUMNS] = whole
    other = (slice(None), slice(0, COLUMNS)) if dim == 0 else (slice(0, ROWS), slice(None))
    expected = padded[other].narrow(dim, first, length)
    assert torch.equal(cut(TensorSlice(whole, dim, first, length), bounds), cut(expected, bounds))


@pytest.mark.parametrize("kind", sorted(FLOATS))
def test_cuts_of_safetensors(kind: str, tmp_path: Path) -> None:
    whole = torch.from_numpy(WHOLE).to(FLOATS[kind])
    save_file({"a": whole, "odd": torch.ones(3), "b": whole[0].clone(), "one": torch.tensor(7.0)}, tmp_path / "f")
    tensors = read_safetensors(tmp_path / "f")
    assert torch.equal(tensors["a"][()].double(), whole.double())
    assert torch.equal(cut(tensors["a"], (3, 9, 5, 50)).double(), whole[3:9, 5:50].double())
    assert torch.equal(tensors["b"][(slice(4, 7),)].double(), whole[0, 4:7].double())
    assert tensors["one"][()] == 7


@pytest.mark.parametrize("columns", [1, 7, COLUMNS])
def test_all_of_it_is_copied_in_pieces(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paternoster_engine.model.weights.stored.PIECE_BYTES", 100)
    whole = torch.from_numpy(WHOLE)[:, :columns]
    out = torch.empty(whole.shape, dtype=torch.bfloat16)
    read_into(out, whole)
    assert torch.equal(out, whole.bfloat16())


@settings(deadline=None)
@given(st.sampled_from(["whole", "rotated", "part"]), bounds, st.sampled_from([0, 1]), st.integers(0, 3), st.data())
def test_blocks_say_what_numbers_do(
    file: MappedFile, way: str, bounds: tuple[int, int, int, int], dim: int, first: int, data: st.DataObject
) -> None:
    """Rows are read whatever they are a part of; a part whose columns cut blocks apart has none."""
    kind = GGMLQuantizationType.Q8_0
    tensor: LazyTensor = GgufTensor(file, StoredTensor(kind, (ROWS, COLUMNS), quantize(WHOLE, kind)), "it")
    if way == "rotated":
        tensor = RotateHalfRows(tensor, 8)
    elif way == "part":
        step = data.draw(st.sampled_from([1, 16, 32]))
        begin, length = first * step, data.draw(st.integers(1, 3)) * step
        tensor = TensorSlice(tensor, dim, begin, length)
        whole = begin % 32 == length % 32 == 0 and begin + length <= COLUMNS
        if dim == 1 and not whole:
            assert block_format(tensor) is None
            return
    last = max(bounds[0], min(bounds[1], tensor.shape[0]))
    rows = StoredRows(tensor).read_rows(bounds[0], last)
    assert torch.equal(torch.from_numpy(dequantize(rows.numpy(), kind).copy()), tensor[slice(bounds[0], last),])
