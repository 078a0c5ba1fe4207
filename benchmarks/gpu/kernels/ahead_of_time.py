"""Compiling kernels for a GPU that is not there, from the very launches the operations make."""

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource
from triton.language import target_info
from triton.runtime.cache import get_cache_manager
from triton.runtime.jit import JITFunction

TYPES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float8_e4m3fn: "*fp8e4nv",
    torch.int8: "*i8",
    torch.uint8: "*u8",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
OPTIONS = ("num_warps", "num_stages")


@dataclass(frozen=True, slots=True)
class Target:
    """An architecture to compile for."""

    gpu: GPUTarget
    shared_limit: int
    """Bytes that a block may ask for."""
    fp8: bool = True
    """Whether Triton has fp8 e4m3 there."""


TARGETS = {
    "sm_80": Target(GPUTarget("cuda", 80, 32), 163 * 1024, fp8=False),
    "sm_90": Target(GPUTarget("cuda", 90, 32), 227 * 1024),
    "sm_100": Target(GPUTarget("cuda", 100, 32), 227 * 1024),
    "gfx942": Target(GPUTarget("hip", "gfx942", 64), 64 * 1024),
}
"""Targets by name. Limits: CUDA C++ Programming Guide; AMD CDNA3 ISA reference (64 KiB of LDS)."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel as an operation would start it."""

    kernel: JITFunction[Any]
    arguments: dict[str, Any]
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Compiled:
    """What one thread and one block of a compiled kernel take."""

    kernel: str
    registers: int
    spill_bytes: int
    shared_bytes: int


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Launches made inside, which are noted and not run."""
    launches: list[Launch] = []

    def note(self: JITFunction[Any], *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        launches.append(Launch(self, dict(zip(self.arg_names, args, strict=False)) | kwargs, options))

    run: Callable[..., Any] = JITFunction.run
    JITFunction.run = note  # type: ignore[method-assign]
    try:
        yield launches
    finally:
        JITFunction.run = run  # type: ignore[method-assign]


def compile_for(launch: Launch, target: Target) -> Compiled:
    """``launch`` compiled for ``target``; raises what Triton, LLVM or ptxas raises."""
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    aligned: dict[tuple[int, ...], list[list[Any]]] = {}
    for index, parameter in enumerate(launch.kernel.params):
        value = launch.arguments[parameter.name]
        if parameter.is_constexpr or (isinstance(value, int) and value == 1):
            signature[parameter.name], constants[parameter.name] = "constexpr", value
            continue
        signature[parameter.name] = _type(value)
        # As at run time: memory from torch starts at multiples of 16 bytes, and strides often are multiples of 16.
        if isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0):
            aligned[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, constants, aligned)
    with _asked_about(target):
        compiled = triton.compile(source, target=target.gpu, options=launch.options)
    if target.gpu.backend == "hip":
        registers, spills = _amdgcn(compiled.asm["amdgcn"])
    else:
        registers, spills = _ptxas(compiled.asm["ptx"], target.gpu.arch)
    return Compiled(launch.kernel.__name__, registers, spills, compiled.metadata.shared)


@contextmanager
def _asked_about(target: Target) -> Iterator[None]:
    """Kernels ask what they are compiled for, and without a GPU Triton would not know."""

    def current_target() -> GPUTarget:
        return target.gpu

    current_target.__triton_builtin__ = True  # type: ignore[attr-defined]
    with mock.patch.object(target_info, "current_target", current_target):
        yield


def _type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return TYPES[value.dtype]
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def _amdgcn(assembly: str) -> tuple[int, int]:
    """Vector registers a thread and bytes it spills, from what LLVM writes beneath its code.

    ``.vgpr_count`` is of both kinds of vector registers together; a spilled one is four bytes a thread.
    """
    found = {name: int(count) for name, count in re.findall(r"^ +\.(\w+_count): +(\d+)$", assembly, re.MULTILINE)}
    return found["vgpr_count"], 4 * found["vgpr_spill_count"]


def _ptxas(ptx: str, capability: int) -> tuple[int, int]:
    """Registers a thread and bytes it spills, from ``ptxas -v``; kept in Triton's cache, beside what it compiled."""
    ptxas = get_ptxas(capability)
    cached_files = get_cache_manager(hashlib.sha256(f"{ptxas.version}\n{ptx}".encode()).hexdigest())
    if file := cached_files.get_file("ptxas.txt"):
        statistics = Path(file).read_text()
    else:
        statistics = _run_ptxas(ptxas.path, ptx)
        cached_files.put(statistics, "ptxas.txt", binary=False)
    registers = re.search(r"Used (\d+) registers", statistics)
    stores = re.search(r"(\d+) bytes spill stores", statistics)
    assert registers is not None
    assert stores is not None
    return int(registers[1]), int(stores[1])


def _run_ptxas(path: str, ptx: str) -> str:
    """What ``ptxas -v`` says; raises ``CalledProcessError`` where it refuses the program."""
    target = re.search(r"\.target (\w+)", ptx)
    assert target is not None
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.ptx").write_text(ptx)
        done = subprocess.run(
            [path, "-v", f"--gpu-name={target[1]}", "kernel.ptx", "-o", "kernel.cubin"],
            cwd=folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
    return done.stderr
