"""The C++ operations compiled for aarch64 and run by an emulator, called as if they were a library of this process."""

import ctypes
import hashlib
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

from paternoster_kernels.cpu.instruction_sets import InstructionSet
from paternoster_kernels.cpu.library import FLAGS, SOURCES, build_once, cache_folder, library_name

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64-static"
PROGRAM = Path(__file__).with_name("serve_operations.cpp")


def missing_tool() -> str | None:
    """What has to be installed first."""
    return next((tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None), None)


def program_of(instructions: InstructionSet) -> Path:
    """Kept in the user's cache, by all that it is made of: compiling takes 20 seconds."""
    digest = hashlib.sha256(library_name(instructions).encode() + PROGRAM.read_bytes()).hexdigest()[:16]
    target = cache_folder() / f"operations_{instructions.name}_{digest}"
    return build_once(target, lambda: _compile(target, instructions))


def _compile(target: Path, instructions: InstructionSet) -> None:
    flags = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")]
    sources = map(str, [PROGRAM, *sorted(SOURCES.glob("*.cpp"))])
    with tempfile.TemporaryDirectory(dir=target.parent) as made:
        partial = Path(made) / target.name
        command = [COMPILER, *flags, "-static", *instructions.flags, f"-I{SOURCES}", "-o", str(partial), *sources]
        subprocess.run(command, check=True)
        partial.replace(target)


class Sizes:
    """How many bytes lie behind a pointer that a tensor gave."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self._data_ptr = torch.Tensor.data_ptr

    def data_ptr(self, tensor: torch.Tensor) -> int:
        """For ``torch.Tensor.data_ptr``."""
        pointer = self._data_ptr(tensor)
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        self.of[pointer] = (last + 1) * tensor.element_size()
        return pointer


class Operation:
    """One function; its last argument, the number of threads, is passed on."""

    argtypes: tuple[type, ...]
    restype: None

    def __init__(self, program: "Program", name: str) -> None:
        self._program, self._name = program, name

    def __call__(self, *arguments: Any) -> None:
        pipe, sizes = self._program.process, self._program.sizes
        assert pipe.stdin is not None
        assert pipe.stdout is not None
        sent = [struct.pack("<q", len(self._name)), self._name.encode()]
        pointers = []
        for kind, value in zip(self.argtypes, arguments, strict=True):
            if kind is not ctypes.c_void_p:
                form = {ctypes.c_int64: "<q", ctypes.c_float: "<f", ctypes.c_int: "<i"}[kind]  # type: ignore[index]
                sent.append(struct.pack(form, value))
            elif value is None:
                sent.append(struct.pack("<q", -1))
            else:
                pointers.append(value)
                sent += [struct.pack("<q", sizes.of[value]), ctypes.string_at(value, sizes.of[value])]
        pipe.stdin.write(b"".join(sent))
        pipe.stdin.flush()
        for pointer in pointers:
            ctypes.memmove(pointer, pipe.stdout.read(sizes.of[pointer]), sizes.of[pointer])


class Program:
    """In place of ``ctypes.CDLL``."""

    def __init__(self, path: Path, sizes: Sizes) -> None:
        self.sizes = sizes
        self.process = subprocess.Popen([EMULATOR, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._operations: dict[str, Operation] = {}

    def __getattr__(self, name: str) -> Operation:
        return self._operations.setdefault(name, Operation(self, name))

    def close(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.communicate()
