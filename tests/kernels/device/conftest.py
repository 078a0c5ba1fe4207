"""Tests of the Triton kernels: on a GPU where there is one, else in Triton's interpreter.

The interpreter must be chosen before Triton is imported, so ``tests/kernels/test_device_kernels.py`` runs this folder
in a process of its own; without a GPU and outside that process there is nothing to collect.
"""

import os
import random
import zlib

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

if INTERPRETED:
    from tests.kernels.device import interpreter

    interpreter.install()
elif not torch.cuda.is_available():
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cpu" if INTERPRETED else "cuda")


@pytest.fixture
def generator(device: torch.device, request: pytest.FixtureRequest) -> torch.Generator:
    """Fresh numbers for each run; a failure shows the seed, and ``PATERNOSTER_SEED`` repeats it.

    In CI each test has its own seed, always the same: a change is judged by itself.
    """
    fresh = zlib.crc32(request.node.name.encode()) if "CI" in os.environ else random.SystemRandom().getrandbits(32)
    seed = int(os.environ.get("PATERNOSTER_SEED") or fresh)
    print(f"PATERNOSTER_SEED={seed}")
    return torch.Generator(device).manual_seed(seed)
