"""Matrices of few bits in safetensors files: which tensors say one, by what a config.json says of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.fields import shorten_value
from paternoster_engine.model.weights.fp8 import Fp8Tensor
from paternoster_engine.model.weights.int4 import (
    MIDDLE,
    Int4Files,
    Int4Tensor,
    by_input,
    by_output,
    in_pairs,
    unpack_fours,
)
from paternoster_engine.model.weights.safetensors_file import FileTensor
from paternoster_engine.model.weights.stored import InBlocks

SERVED = (
    "awq (4 bits), gptq (4 bits, desc_act false), compressed-tensors (pack-quantized with 4 bits, float-quantized), "
    "fp8, mxfp4, modelopt (FP8)"
)

PACKED = {"weight_packed": ("compressed-tensors",), "qweight": ("awq", "gptq")}
"""What a matrix of packed numbers is called behind its own name -> the methods that have such."""
GPTQ_LESS = {"gptq": 0x11111111, "gptq_v2": 0}
"""Format of GPTQ files -> what each word of eight stored zero points is less than the zero points."""
FP8, FP8_SCALES, FP8_SCALE_KINDS = "F8_E4M3", ("weight_scale_inv", "weight_scale"), ("F32", "BF16", "F16")

Find = Callable[[str], FileTensor | None]
"""A tensor by its name behind the matrix's own, such as ``qweight``."""


class QuantizedMatrices:
    """Matrices by the ``quantization_config`` of a model's config.json; empty for a model without."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Raises :class:`ModelError` for a method that is not served."""
        self._config = config
        self._method = config.get("quant_method")
        bits = config.get("bits", 4)
        served = {
            "awq": bits == 4 and config.get("version", "gemm") == "gemm",
            "gptq": bits == 4 and not config.get("desc_act", False),
            "compressed-tensors": config.get("format") in ("pack-quantized", "float-quantized"),
            "fp8": True,
            "mxfp4": True,
            "modelopt": config.get("quant_algo") == "FP8",
        }
        if config and not (isinstance(self._method, str) and served.get(self._method, False)):
            fields = {
                key: config[key]
                for key in ("quant_method", "quant_algo", "format", "bits", "desc_act", "version")
                if key in config
            }
            raise ModelError(f"config.json: quantization_config is {shorten_value(fields)}: must be of {SERVED}")

    def find_matrix(self, name: str, find: Find) -> InBlocks | None:
        """The matrix ``name``, without ``.weight``; None for one that is stored as numbers without scales."""
        for suffix, methods in PACKED.items():
            if (packed := find(suffix)) is None:
                continue
            if self._method not in methods:
                problem = f"of quantization_config is {shorten_value(self._method)}: must be {' or '.join(methods)}"
                raise ModelError(f"{name} has a {suffix}, and config.json's quant_method {problem}")
            return (self._read_compressed if suffix == "weight_packed" else self._by_input)(name, packed, find)
        numbers = find("weight")
        scales = next((found for suffix in FP8_SCALES if (found := find(suffix)) is not None), None)
        if numbers is None or (scales is None and (numbers.kind != FP8 or not self._config)):
            return None
        if numbers.kind != FP8 or len(numbers.shape) != 2:
            stored_as = f"numbers of {numbers.kind} in the shape {list(numbers.shape)}"
            raise ModelError(f"{name} has scales for {stored_as}: must be a matrix of {FP8}")
        if scales is None:
            raise ModelError(f"{name} is of {FP8} without scales: must have a {' or a '.join(FP8_SCALES)}")
        if scales.kind not in FP8_SCALE_KINDS:
            raise ModelError(f"{name} has scales of {scales.kind}: must be of {' or '.join(FP8_SCALE_KINDS)}")
        return Fp8Tensor(name, numbers, scales[()], self._block_size())

    def _block_size(self) -> tuple[int, int] | None:
        size: Any = self._config.get("weight_block_size")
        for group in _read_groups(self._config):
            size = size or group.get("block_structure")
        if isinstance(size, list) and len(size) == 2 and all(type(each) is int and each > 0 for each in size):
            return size[0], size[1]
        return None

    def _read_compressed(self, name: str, numbers: FileTensor, find: Find) -> Int4Tensor:
        groups = _read_groups(self._config)
        for group in groups:
            if group.get("num_bits") != 4 or group.get("type", "int") != "int":
                number_format = {key: group.get(key) for key in ("num_bits", "type")}
                raise ModelError(
                    f"config.json: weights of quantization_config are {shorten_value(number_format)}: "
                    f"must be of 4 bits, int"
                )
        files = Int4Files(
            name, _find_words(name, numbers), _find_tensor(name, find, "weight_scale"), find("weight_zero_point")
        )
        if files.zeros is None and groups and all(group.get("symmetric") is False for group in groups):
            raise ModelError(f"{name} has no weight_zero_point: must be there where symmetric is false in config.json")
        if find("weight_g_idx") is not None:
            raise ModelError(f"{name} has a weight_g_idx: must have its groups in the order of the inputs")
        matrix = Int4Tensor(files, by_output, (numbers.shape[0], 8 * numbers.shape[1]))
        return _check_groups(name, matrix, [group.get("group_size") for group in groups])

    def _by_input(self, name: str, numbers: FileTensor, find: Find) -> Int4Tensor:
        zeros, scales = _find_tensor(name, find, "qzeros"), _find_tensor(name, find, "scales")
        sizes = [self._config.get("group_size")]
        if self._method == "awq":
            files = Int4Files(name, _find_words(name, numbers), scales, zeros)
            return _check_groups(name, Int4Tensor(files, in_pairs, (8 * numbers.shape[1], numbers.shape[0])), sizes)
        files = Int4Files(name, _find_words(name, numbers), scales, zeros)
        matrix = _check_groups(name, Int4Tensor(files, by_input, (numbers.shape[1], 8 * numbers.shape[0])), sizes)
        files = replace(files, zeros_less=self._find_gptq_less(name, zeros[()], matrix.shape[0]))
        matrix = Int4Tensor(files, by_input, matrix.shape)
        order = find("g_idx")
        if order is not None and not _in_order(order, matrix):
            raise ModelError(f"{name} has groups in another order than its inputs (g_idx): must be as desc_act false")
        return matrix

    def _find_gptq_less(self, name: str, zeros: torch.Tensor, outputs: int) -> int:
        """Find :attr:`Int4Files.zeros_less`; raises :class:`ModelError` for ``zeros`` that more than one rule can read.

        Zero point 0 less one is -1. GPTQModel subtracts from whole words, so that it borrows from the next four bits;
        others wrap within four bits, and early AutoGPTQ overwrote the four bits above with ones (AutoGPTQ#640).
        """
        written = "checkpoint_format" if "checkpoint_format" in self._config else "format"
        called = self._config.get(written, "gptq")
        if not isinstance(called, str) or called not in GPTQ_LESS:
            raise ModelError(
                f"config.json: {written} of quantization_config is {shorten_value(called)}: "
                f"must be {' or '.join(GPTQ_LESS)}"
            )
        stored = unpack_fours(zeros).flatten(1)[:, :outputs]
        if self._config.get("sym") is True:
            # Whatever the format is called: writers gave files of the second one the first one's name.
            for less, point in ((0x11111111, MIDDLE - 1), (0, MIDDLE)):
                if (stored == point).all():
                    return less
            raise ModelError(
                f"{name} has zero points from {int(stored.min())} to {int(stored.max())}, and sym of "
                f"quantization_config is true: must all be {MIDDLE - 1} (gptq) or all {MIDDLE} (gptq_v2)"
            )
        less = GPTQ_LESS[called]
        by_word = unpack_fours((zeros.long() + less).int()).flatten(1)[:, :outputs]
        by_four = stored + (less & 15) & 15
        if not torch.equal(by_word, by_four) and not _is_of_gptqmodel(self._config):
            raise ModelError(
                f"{name} has {int((by_word != by_four).sum())} zero points that writers of checkpoint_format 'gptq' "
                "store in different ways, beside zero points of 0: must have none, be of checkpoint_format 'gptq_v2', "
                "or name gptqmodel as meta.quantizer in config.json's quantization_config"
            )
        return less


def _is_of_gptqmodel(config: Mapping[str, Any]) -> bool:
    """Whether the file names GPTQModel as what wrote it, as it does."""
    meta = config.get("meta")
    writers = meta.get("quantizer") if isinstance(meta, Mapping) else None
    names = writers if isinstance(writers, list) else [writers]
    return any(isinstance(name, str) and name.startswith("gptqmodel") for name in names)


def _read_groups(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What compressed-tensors says of weights, group by group."""
    groups = config.get("config_groups")
    found = (
        [group.get("weights") for group in groups.values() if isinstance(group, Mapping)]
        if isinstance(groups, Mapping)
        else []
    )
    return [weights for weights in found if isinstance(weights, Mapping)]


def _find_tensor(name: str, find: Find, suffix: str) -> FileTensor:
    found = find(suffix)
    if found is None or len(found.shape) != 2:
        raise ModelError(f"{name} has no matrix {suffix}")
    return found


def _find_words(name: str, numbers: FileTensor) -> FileTensor:
    if numbers.kind != "I32" or len(numbers.shape) != 2:
        raise ModelError(f"{name} is of {numbers.kind} in the shape {list(numbers.shape)}: must be a matrix of I32")
    return numbers


def _check_groups(name: str, matrix: Int4Tensor, sizes: Sequence[Any]) -> Int4Tensor:
    """``matrix``, whose groups must be of one of the ``sizes`` in the config; below 1: all inputs are one group."""
    group_sizes = [size for size in sizes if isinstance(size, int)]
    if not group_sizes or len(group_sizes) < len(sizes):
        return matrix
    if matrix.group in [size if size > 0 else matrix.shape[1] for size in group_sizes]:
        return matrix
    problem = f"groups of {matrix.group} inputs, and config.json's group_size is {shorten_value(group_sizes)}"
    raise ModelError(f"{name} has scales for {problem}: must be the same")


def _in_order(order: FileTensor, matrix: Int4Tensor) -> bool:
    """Whether each input's group, as ``order`` says it, is where it stands."""
    inputs = matrix.shape[1]
    return (
        order.kind == "I32"
        and order.shape == (inputs,)
        and torch.equal(order[()], (torch.arange(inputs) // matrix.group).int())
    )
