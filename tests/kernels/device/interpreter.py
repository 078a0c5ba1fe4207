"""Triton's interpreter made to round as the hardware does, and to work with the numpy of today.

Triton 3.6 interprets a cast from float32 to bfloat16 as a cut instead of a rounding, one from an integer as a cut of
its bits, loses the carry when it rounds to fp8, and turns arrays of one element into loop bounds in a way that numpy
2.4 refuses. Its products are numpy's, which on some processors sum a row otherwise where more rows are beside it.

Half of its time went into sums of integers computed once more in 64 bits, to assert that none overflows; it builds
these assertions and drops them, as it does not debug. They are not built here.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

TORCH_DTYPES = {
    tl.float32: torch.float32,
    tl.float16: torch.float16,
    tl.bfloat16: torch.bfloat16,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
}
BITS = {8: np.uint8, 16: np.uint16, 32: np.uint32}
TORCH_BITS = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32}


def convert_float(data: np.ndarray, source: Any, target: Any, rounding: Any) -> np.ndarray:
    """``data`` of Triton type ``source`` as the bits of ``target``, rounded to nearest, ties to even."""
    shape = np.shape(data)
    bits = torch.from_numpy(np.ascontiguousarray(data).reshape(-1).view(BITS[source.primitive_bitwidth]))
    converted = bits.view(TORCH_DTYPES[source]).to(TORCH_DTYPES[target])
    return converted.view(TORCH_BITS[target.primitive_bitwidth]).numpy().reshape(shape)


def dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
    """``a @ b + d``, row by row, so that a row's sums depend on nothing but the row, as those of tensor cores do."""
    rows, columns = (_wide(operand) for operand in (a, b))
    product = np.matmul(rows[..., :, None, :], columns[..., None, :, :], dtype=d.data.dtype)[..., 0, :]
    return interpreter.TensorHandle(product + d.data, d.dtype.scalar)


def _wide(operand: Any) -> np.ndarray:
    """Numbers to multiply with; of fp8 only the bits are there."""
    dtype = operand.dtype
    if dtype.primitive_bitwidth != 8 or not dtype.is_floating():
        return operand.data
    return convert_float(operand.data, dtype.scalar, tl.float16, None).view(np.float16)


def numpy_dtype(dtype: Any) -> Any:
    """Convert like Triton, which makes its table of types anew at each call."""
    return np.dtype(np.uint64) if dtype.scalar.is_ptr() else _scalar_numpy_dtype(dtype.scalar)


_scalar_numpy_dtype = cache(interpreter._get_np_dtype)


def set_block_type(self: Any, element_type: Any, shape: Any) -> None:
    """Block type as Triton's, which checks and names the shape of each value anew."""
    dimensions = (tl.core._unwrap_if_constexpr(dimension) for dimension in tl.core._unwrap_if_constexpr(shape))
    vars(self).update(_block_type_fields(element_type, tuple(dimensions)))


@cache
def _block_type_fields(element_type: Any, dimensions: tuple[int, ...]) -> dict[str, Any]:
    block_type = object.__new__(tl.core.block_type)
    _set_block_type(block_type, element_type, list(dimensions))
    fields: dict[str, Any] = vars(block_type)
    return fields


_set_block_type = tl.core.block_type.__init__


def install() -> None:
    builder = interpreter.interpreter_builder
    assert not builder.options.debug, "else its assertions are not dropped"
    builder.options = replace(builder.options, sanitize_overflow=False)
    patch_tensor, patch_language = interpreter._patch_lang_tensor, interpreter._patch_lang
    patched: set[str] = set()

    def patch(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    def patch_once(function: Any) -> Any:
        """Triton patches the language anew in each call of a device function; in this process it stays patched."""
        if function.__module__ not in patched:
            patched.add(function.__module__)
            patch_language(function)
        return interpreter._LangPatchScope()

    cast = interpreter.InterpreterBuilder.cast_impl

    def cast_by_float32(self: Any, value: Any, target: Any) -> Any:
        if target.scalar == tl.bfloat16 and value.dtype.scalar.is_int():
            value = cast(self, value, tl.float32)
        return cast(self, value, target)

    interpreter.InterpreterBuilder.cast_impl = cast_by_float32
    interpreter.InterpreterBuilder.create_dot = dot
    interpreter._patch_lang_tensor = patch
    interpreter._patch_lang = patch_once
    tl.core.block_type.__init__ = set_block_type
    tl.core.pointer_type.__hash__ = lambda self: hash(self.name)
    interpreter._convert_float = convert_float
    interpreter._get_np_dtype = numpy_dtype
