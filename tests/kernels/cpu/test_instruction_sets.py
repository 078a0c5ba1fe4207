"""Which instruction sets a processor has, and which of them is run."""

import platform
from pathlib import Path

import pytest

from paternoster_kernels.cpu import instruction_sets
from paternoster_kernels.cpu.instruction_sets import SETS, choose_instructions, find_available, first_processor

AVX2 = "avx2 fma f16c"
AVX512 = f"{AVX2} avx512f avx512bw avx512cd avx512dq avx512vl"
BF16 = f"{AVX512} avx512_vnni avx512_bf16"


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> object:
    """Makes this machine another."""

    def become(machine: str, flags: str, tiles: bool = True, vendor: str = "AuthenticAMD") -> None:
        monkeypatch.setattr(platform, "machine", lambda: machine)
        fields = {"vendor_id": vendor, "flags": flags} if machine == "x86_64" else {"Features": flags}
        monkeypatch.setattr(instruction_sets, "first_processor", lambda: fields)
        monkeypatch.setattr(instruction_sets, "_tiles_allowed", lambda: tiles)
        monkeypatch.setattr(instruction_sets, "find_available", find_available.__wrapped__)
        monkeypatch.delenv(instruction_sets.ENV, raising=False)

    return become


@pytest.mark.parametrize(
    ("machine", "flags", "tiles", "expected"),
    [
        ("x86_64", f"{BF16} amx_tile amx_bf16 amx_int8", True, ["amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2"]),
        ("x86_64", f"{BF16} amx_tile amx_bf16 amx_int8", False, ["avx512_bf16", "avx512_vnni", "avx512", "avx2"]),
        ("x86_64", f"{AVX512} avx512_vnni", True, ["avx512_vnni", "avx512", "avx2"]),
        ("x86_64", AVX512, True, ["avx512", "avx2"]),
        ("x86_64", AVX2, True, ["avx2"]),
        ("x86_64", "avx sse2", True, []),
        ("aarch64", "fp asimd asimddp bf16 i8mm", True, ["neon_bf16", "neon"]),
        ("aarch64", "fp asimd", True, ["neon"]),
        ("riscv64", AVX2, True, []),
    ],
)
def test_the_best_come_first(processor, machine: str, flags: str, tiles: bool, expected: list[str]) -> None:
    processor(machine, flags, tiles)
    assert [found.name for found in find_available.__wrapped__()] == expected
    best = choose_instructions()
    assert (None if best is None else best.name) == (expected[0] if expected else None)


def test_pairs_of_bfloat16_are_intels_last_choice(processor) -> None:
    processor("x86_64", BF16, vendor="GenuineIntel")
    assert [found.name for found in find_available.__wrapped__()] == ["avx512_vnni", "avx512", "avx2", "avx512_bf16"]


def test_the_environment_chooses_a_lesser_one_or_none(processor, monkeypatch: pytest.MonkeyPatch) -> None:
    processor("x86_64", AVX512)
    monkeypatch.setenv(instruction_sets.ENV, "avx2")
    found = choose_instructions()
    assert found is not None
    assert found.name == "avx2"
    monkeypatch.setenv(instruction_sets.ENV, "none")
    assert choose_instructions() is None


@pytest.mark.parametrize("name", ["amx", "neon", "AVX2"])
def test_one_that_the_processor_has_not_is_refused(processor, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    processor("x86_64", AVX512)
    monkeypatch.setenv(instruction_sets.ENV, name)
    with pytest.raises(ValueError, match=rf"PATERNOSTER_CPU_ISA is '{name}': must be one of avx512, avx2, none"):
        choose_instructions()


def test_the_first_of_several_processors(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nflags\t\t: fpu avx2\nbugs\t:\n\nprocessor : 1\nflags\t\t: fpu\n")
    assert first_processor(cpuinfo) == {"processor": "0", "flags": "fpu avx2", "bugs": ""}
    assert first_processor(tmp_path / "absent") == {}


def test_names_are_unique() -> None:
    assert len({found.name for found in SETS}) == len(SETS)
