"""Matrices of four bits in groups of inputs, as AWQ, GPTQ and compressed-tensors have them in safetensors files."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.weights.safetensors_file import FileTensor
from paternoster_engine.model.weights.stored import Cut, whole_cut
from paternoster_kernels.blocks import FORMATS, BlockFormat

MIDDLE = 8
"""What zero is stored as where the file has no zero points."""
AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""In which four bits of a word each of eight neighbouring outputs is."""
SCALES = {"F16": "INT4_F16", "BF16": "INT4_BF16"}
"""Type of the scales -> the format of the blocks."""


@dataclass(frozen=True, slots=True)
class Int4Files:
    """The tensors of a matrix; ``zeros`` None where all zero points are :data:`MIDDLE`."""

    name: str
    """Name of the matrix, for errors."""
    numbers: FileTensor
    scales: FileTensor
    zeros: FileTensor | None = None
    zeros_less: int = 0
    """What is to be added to each word of stored zero points, whose carries count: GPTQ's first format has them less
    one.
    """


@dataclass(frozen=True, slots=True)
class Int4Rows:
    """Rows of outputs: ``numbers [rows, in]``, ``zeros [rows, groups]``, both uint8, and ``scales [rows, groups]``."""

    numbers: torch.Tensor
    zeros: torch.Tensor
    scales: torch.Tensor


def by_output(files: Int4Files, first: int, last: int) -> Int4Rows:
    """compressed-tensors': words of eight neighbouring inputs, and zero points of eight neighbouring outputs."""
    numbers = unpack_fours(files.numbers[(slice(first, last),)]).flatten(1)
    scales = files.scales[(slice(first, last),)]
    if files.zeros is None:
        return Int4Rows(numbers, torch.full(scales.shape, MIDDLE, dtype=torch.uint8), scales)
    words = slice(first // 8, -(-last // 8))
    zeros = unpack_fours(files.zeros[(words,)]).transpose(1, 2).flatten(0, 1)
    return Int4Rows(numbers, zeros[first - 8 * words.start :][: last - first], scales)


def by_input(files: Int4Files, first: int, last: int) -> Int4Rows:
    """GPTQ's: words ``[in / 8, out]`` of eight neighbouring inputs."""
    numbers = unpack_fours(files.numbers[(slice(None), slice(first, last))]).transpose(0, 1).flatten(1)
    return Int4Rows(numbers, _unpack_columns(files, first, last, range(8)), _read_scales(files, first, last))


def in_pairs(files: Int4Files, first: int, last: int) -> Int4Rows:
    """AWQ's: words ``[in, out / 8]`` of eight neighbouring outputs, the even ones first."""
    words = slice(first // 8, -(-last // 8))
    fours = unpack_fours(files.numbers[(slice(None), words)])[..., AWQ_PLACES].flatten(1)
    numbers = fours[:, first - 8 * words.start :][:, : last - first].T
    return Int4Rows(
        numbers.contiguous(), _unpack_columns(files, first, last, AWQ_PLACES), _read_scales(files, first, last)
    )


class Int4Tensor:
    """A :class:`.stored.InBlocks` of ``(number - zero) * scale``; blocks have 32 inputs whatever a group has."""

    def __init__(
        self, files: Int4Files, read: Callable[[Int4Files, int, int], Int4Rows], shape: tuple[int, int]
    ) -> None:
        """Raises :class:`ModelError` for tensors that do not belong together."""
        self._files, self._read, self.shape = files, read, shape
        outputs, inputs = shape
        groups = files.scales.shape[1 if read is by_output else 0]
        if groups == 0 or inputs % groups:
            raise ModelError(f"{files.name} has {groups} groups of {inputs} inputs: must be equal parts")
        self.group = inputs // groups
        """Inputs that share a scale."""
        scales, zeros = ((outputs, groups), (-(-outputs // 8), groups))
        if read is not by_output:
            scales, zeros = (groups, outputs), (groups, -(-outputs // 8))
        _check_tensor(files.name, "scales", files.scales, scales, ("F16", "BF16", "F32"))
        if files.zeros is not None:
            _check_tensor(files.name, "zero points", files.zeros, zeros, ("I32",))

    @property
    def format(self) -> BlockFormat | None:
        """None for groups that are no whole blocks, and for scales in float32."""
        name = SCALES.get(self._files.scales.kind)
        return None if self.group % 32 or name is None else FORMATS[name]

    def read_blocks(self, first: int, last: int) -> torch.Tensor:
        """Read scale, zero point, and bytes of inputs i and i + 16, see :class:`.stored.InBlocks`."""
        rows = self._read(self._files, first, last)
        scales = rows.scales.repeat_interleave(self.group // 32, 1).unsqueeze(-1).view(torch.uint8)
        zeros = rows.zeros.repeat_interleave(self.group // 32, 1).unsqueeze(-1)
        numbers = rows.numbers.unflatten(1, (-1, 2, 16))
        return torch.cat((scales, zeros, numbers[:, :, 0] | numbers[:, :, 1] << 4), -1).flatten(1)

    def __getitem__(self, cut: Cut) -> torch.Tensor:
        (first, last), columns = whole_cut(cut, self.shape)
        if last <= first:
            return torch.empty(0, max(0, columns[1] - columns[0]))
        rows = self._read(self._files, first, last)
        numbers = rows.numbers.float().unflatten(1, (-1, self.group)) - rows.zeros.float().unsqueeze(-1)
        scaled: torch.Tensor = numbers * rows.scales.float().unsqueeze(-1)
        return scaled.flatten(1)[:, slice(*columns)]


def _check_tensor(name: str, what: str, stored: FileTensor, shape: tuple[int, int], kinds: tuple[str, ...]) -> None:
    if stored.kind not in kinds or stored.shape != shape:
        stored_as = f"{what} of {stored.kind} in the shape {list(stored.shape)}"
        raise ModelError(f"{name} has {stored_as}: must be of {' or '.join(kinds)} in the shape {list(shape)}")


def unpack_fours(words: torch.Tensor) -> torch.Tensor:
    """``[..., n]`` int32 as ``[..., n, 8]`` uint8, the lowest bits first."""
    octets = words.contiguous().unsqueeze(-1).view(torch.uint8)
    return torch.stack((octets & 15, octets >> 4), -1).flatten(-2)


def _unpack_columns(files: Int4Files, first: int, last: int, places: range | tuple[int, ...]) -> torch.Tensor:
    """Zero points ``[rows, groups]`` of words ``[groups, out / 8]``."""
    assert files.zeros is not None
    words = slice(first // 8, -(-last // 8))
    zeros = unpack_fours((files.zeros[(slice(None), words)].long() + files.zeros_less).int())
    return zeros[..., list(places)].flatten(1)[:, first - 8 * words.start :][:, : last - first].T


def _read_scales(files: Int4Files, first: int, last: int) -> torch.Tensor:
    return files.scales[(slice(None), slice(first, last))].T.contiguous()
