"""CPU counting under cgroup quotas, and the choice of number format."""

import os
from pathlib import Path

import pytest
import torch

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.runner import device
from paternoster_engine.runner.device import (
    available_cpus,
    device_fault,
    resolve_device,
    resolve_dtype,
    resolve_kv_dtype,
)

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


@pytest.mark.parametrize(
    ("cpu_max", "expected"),
    [("max 100000", 8), ("200000 100000", 2), ("250000 100000", 2), ("10000 100000", 1), ("1600000 100000", 8)],
)
def test_quota_of_cgroup_v2(tmp_path: Path, cpu_max: str, expected: int) -> None:
    (tmp_path / "cpu.max").write_text(cpu_max + "\n")
    assert available_cpus(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("300000", 3)])
def test_quota_of_cgroup_v1(tmp_path: Path, quota: str, expected: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota + "\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert available_cpus(tmp_path) == expected


def test_without_a_cgroup(tmp_path: Path) -> None:
    assert available_cpus(tmp_path) == 8


@pytest.mark.parametrize(
    ("native", "capabilities", "expected"),
    [
        (True, {}, torch.bfloat16),
        (False, {"amx_bf16": True}, torch.bfloat16),
        (False, {"avx512_bf16": True}, torch.bfloat16),
        (False, {"avx512_f": True, "amx_bf16": False}, torch.float32),
        (False, {}, torch.float32),
    ],
)
def test_auto_dtype_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, native: bool, capabilities: dict, expected: torch.dtype
) -> None:
    monkeypatch.setattr(device, "load_library", lambda: object() if native else None)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert resolve_dtype("auto", CPU) == expected
    assert resolve_dtype("float32", CPU) == torch.float32
    assert resolve_dtype("bfloat16", CPU) == torch.bfloat16


def test_absent_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == CPU
    with pytest.raises(UnsupportedModelError, match="device is 'cuda'"):
        resolve_device("cuda")


def test_a_device_is_lost_when_it_says_so_out_of_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def synchronize(device: torch.device) -> None:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    assert device_fault(torch.device("cpu")) is None
    assert device_fault(torch.device("cuda:1")) == "device cuda:1 is lost: CUDA error: device-side assert triggered"
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    assert device_fault(torch.device("cuda")) is None


def test_what_keys_and_values_are_kept_in(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_kv_dtype("auto", torch.bfloat16, CPU) == torch.bfloat16
    assert resolve_kv_dtype("int8", torch.bfloat16, CPU) == torch.int8
    cuda = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    assert resolve_kv_dtype("fp8", torch.bfloat16, cuda) == torch.float8_e4m3fn
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    for without in (CPU, cuda):
        with pytest.raises(UnsupportedModelError, match=f"kv_cache_dtype is 'fp8': .* 'int8' on {without.type}"):
            resolve_kv_dtype("fp8", torch.bfloat16, without)
