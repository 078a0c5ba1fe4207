"""Matrices of few bits in safetensors files: which tensors say one, by what a config.json says of them."""

from collections.abc import Callable, Mapping
from typing import Any

from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.fields import shown
from paternoster_engine.model.weights.fp8 import Fp8Tensor
from paternoster_engine.model.weights.int4 import Int4Files, Int4Tensor, by_input, by_output, in_pairs
from paternoster_engine.model.weights.safetensors_file import FileTensor
from paternoster_engine.model.weights.stored import InBlocks

SERVED = (
    "awq (4 bits), gptq (4 bits, desc_act false), compressed-tensors (pack-quantized with 4 bits, float-quantized), "
    "fp8, mxfp4"
)

Find = Callable[[str], FileTensor | None]
"""A tensor by its name behind the matrix's own, such as ``qweight``."""


class QuantizedMatrices:
    """By the ``quantization_config`` of a model's config.json; empty for a model without."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        """Raises :class:`ModelError` for a method that is not served."""
        self._said = said
        self._method = said.get("quant_method")
        bits = said.get("bits", 4)
        served = {
            None: not said,
            "awq": bits == 4 and said.get("version", "gemm") == "gemm",
            "gptq": bits == 4 and not said.get("desc_act", False),
            "compressed-tensors": said.get("format") in ("pack-quantized", "float-quantized"),
            "fp8": True,
            "mxfp4": True,
        }
        if not served.get(self._method, False):
            known = {key: said[key] for key in ("quant_method", "format", "bits", "desc_act", "version") if key in said}
            raise ModelError(f"config.json: quantization_config is {shown(known)}: must be of {SERVED}")

    def matrix(self, name: str, find: Find) -> InBlocks | None:
        """The matrix ``name``, without ``.weight``; None for one that is stored as numbers without scales."""
        if (packed := find("weight_packed")) is not None:
            return self._compressed(name, packed, find)
        if (packed := find("qweight")) is not None:
            return self._by_input(name, packed, find)
        numbers = find("weight")
        if numbers is None or numbers.kind != "F8_E4M3" or len(numbers.shape) != 2:
            return None
        scales = next((found for suffix in ("_scale_inv", "_scale") if (found := find("weight" + suffix))), None)
        return None if scales is None else Fp8Tensor(name, numbers, scales[()], self._block_size())

    def _block_size(self) -> tuple[int, int] | None:
        said: Any = self._said.get("weight_block_size")
        for group in _groups(self._said):
            said = said or group.get("block_structure")
        if isinstance(said, list) and len(said) == 2 and all(type(size) is int and size > 0 for size in said):
            return said[0], said[1]
        return None

    def _compressed(self, name: str, numbers: FileTensor, find: Find) -> Int4Tensor:
        for group in _groups(self._said):
            if group.get("num_bits") != 4 or group.get("type", "int") != "int":
                said = {key: group.get(key) for key in ("num_bits", "type")}
                raise ModelError(
                    f"config.json: weights of quantization_config are {shown(said)}: must be of 4 bits, int"
                )
        files = Int4Files(name, _words(name, numbers), _there(name, find, "weight_scale"), find("weight_zero_point"))
        if find("weight_g_idx") is not None:
            raise ModelError(f"{name} has a weight_g_idx: must have its groups in the order of the inputs")
        return Int4Tensor(files, by_output, (numbers.shape[0], 8 * numbers.shape[1]))

    def _by_input(self, name: str, numbers: FileTensor, find: Find) -> Int4Tensor:
        zeros, scales = _there(name, find, "qzeros"), _there(name, find, "scales")
        if self._method == "awq":
            files = Int4Files(name, _words(name, numbers), scales, zeros)
            return Int4Tensor(files, in_pairs, (8 * numbers.shape[1], numbers.shape[0]))
        less = 0 if self._said.get("checkpoint_format") == "gptq_v2" else 1
        files = Int4Files(name, _words(name, numbers), scales, zeros, less)
        return Int4Tensor(files, by_input, (numbers.shape[1], 8 * numbers.shape[0]))


def _groups(said: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What compressed-tensors says of weights, group by group."""
    groups = said.get("config_groups")
    found = (
        [group.get("weights") for group in groups.values() if isinstance(group, dict)]
        if isinstance(groups, dict)
        else []
    )
    return [weights for weights in found if isinstance(weights, dict)]


def _there(name: str, find: Find, suffix: str) -> FileTensor:
    found = find(suffix)
    if found is None or len(found.shape) != 2:
        raise ModelError(f"{name} has no matrix {suffix}")
    return found


def _words(name: str, numbers: FileTensor) -> FileTensor:
    if numbers.kind != "I32" or len(numbers.shape) != 2:
        raise ModelError(f"{name} is of {numbers.kind} in the shape {list(numbers.shape)}: must be a matrix of I32")
    return numbers
