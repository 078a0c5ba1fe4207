"""The C++ operations in each instruction set that this processor has, in AMX's by emulation, and in other machines'.

Those of another machine take a hundred times as long: they run where ``EMULATE_ARM`` is set (scripts/check-arm).
"""

import os
import platform
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.kernels.cpu import another_machine

from paternoster_kernels.cpu import instruction_sets
from paternoster_kernels.cpu import library as module
from paternoster_kernels.cpu.instruction_sets import SETS, InstructionSet
from paternoster_kernels.cpu.library import load_library

TILES = Path(__file__).with_name("emulated_tiles.h")
EMULATED = "amx_emulated"


@pytest.fixture(scope="module", params=[*(found.name for found in SETS), EMULATED])
def instructions(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the instruction set that operations run in meanwhile."""
    other = next((found for found in SETS if found.name == request.param and found.machine != platform.machine()), None)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == EMULATED:
            if "amx" in [found.name for found in instruction_sets.find_available()]:
                pytest.skip("this processor has the tiles that are emulated")
            tiles = ("-include", str(TILES), f"-DEMULATED_TILES_{zlib.crc32(TILES.read_bytes())}")
            made = tuple(
                InstructionSet(EMULATED, found.machine, found.needs, (*found.flags, *tiles))
                for found in instruction_sets.find_available()[:1]
                if found.machine == "x86_64"
            )
            patch.setattr(instruction_sets, "find_available", lambda: made)
        if other is not None:
            _become(other, patch)
        if request.param not in [found.name for found in instruction_sets.find_available()]:
            pytest.skip(f"this processor has no {request.param}")
        patch.setitem(os.environ, instruction_sets.ENV, request.param)
        load_library.cache_clear()
        found = load_library()
        if found is None and not any(map(shutil.which, module.COMPILERS)):
            pytest.skip(f"no library and no C++ compiler of {', '.join(module.COMPILERS)}")
        assert found is not None, "the library does not compile"
        yield request.param
        if other is not None:
            found.close()
    load_library.cache_clear()


def _become(other: InstructionSet, patch: pytest.MonkeyPatch) -> None:
    """Another kind of machine, by emulation."""
    if "EMULATE_ARM" not in os.environ:
        pytest.skip(f"{other.name} is another machine's: scripts/check-arm runs it in an emulator")
    tool = another_machine.missing_tool()
    if other.machine != "aarch64" or tool is not None:
        pytest.skip(f"{other.name} is another machine's, and there is no {tool or 'emulator'} here")
    path, sizes = another_machine.program_of(other), another_machine.Sizes()
    patch.setattr(torch.Tensor, "data_ptr", lambda tensor: sizes.data_ptr(tensor))
    patch.setattr(instruction_sets, "find_available", lambda: (other,))
    patch.setattr(module, "build_once", lambda target, make: path)
    patch.setattr(module, "ctypes", SimpleNamespace(CDLL=lambda path: another_machine.Program(path, sizes)))
