"""The products of experts that the GPU check times: what they compute, move and cost, and the script in between."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gpu.kernels.expert_products import GPT_OSS_20B, QWEN3_30B, Mixture, products, route
from paternoster_kernels import reference

ROOT = Path(__file__).resolve().parents[3]
TOY = Mixture("toy", experts=5, active=2, hidden=96, width=40)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def test_each_token_goes_through_as_many_experts_as_are_active() -> None:
    rows, starts = route(TOY, 33, generator())
    assert rows.bincount().tolist() == [2] * 33
    assert (starts[0], starts[-1]) == (0, 66)
    chosen = torch.repeat_interleave(torch.arange(5), starts.diff().long())
    assert len(set(zip(rows.tolist(), chosen.tolist(), strict=True))) == 66


@pytest.mark.parametrize("tokens", [1, 70])
def test_work_by_hand(tokens: int) -> None:
    first, second = products(TOY, tokens, torch.float32, reference.grouped_matmul, generator())
    num_experts = int((route(TOY, tokens, generator())[1].diff() > 0).sum())
    assert num_experts == (2 if tokens == 1 else 5)
    pairs = 2 * tokens
    assert (first.flops, second.flops) == (2 * pairs * 80 * 96, 2 * pairs * 96 * 40)
    assert first.moved == 4 * (num_experts * 80 * 96 + tokens * 96 + pairs * 80)
    assert second.moved == 4 * (num_experts * 96 * 40 + pairs * 40 + pairs * 96)
    for product, width in ((first, 80), (second, 96)):
        assert product.call().shape == (pairs, width)
        torch.testing.assert_close(product.one_by_one(), product.call())


def test_the_shapes_are_the_models() -> None:
    """Shapes of the experts alone: 29.0 of Qwen3's 30.5 billion parameters, 19.1 of gpt-oss's 20.9, without biases."""
    billions = [layers * m.experts * 3 * m.hidden * m.width / 1e9 for layers, m in ((48, QWEN3_30B), (24, GPT_OSS_20B))]
    assert billions == pytest.approx([28.99, 19.11], abs=0.01)


SCRIPT = """
import json, sys
sys.path[:0] = sys.argv[1:3]
import interpreter
interpreter.install()
import torch
from gpu.kernels import speed
from gpu.budget import Ceilings
from gpu.kernels.expert_products import Mixture
from paternoster_kernels.registry import triton_op

def seconds(call):
    results.append(call())
    return 1e-3

results = []
speed.CUDA, speed._seconds, speed.pick = torch.device("cpu"), seconds, lambda name, _: triton_op(name)
speed.MIXTURES, speed.MIXTURE_TOKENS = [Mixture("toy", 5, 2, 96, 40)], (1, 70)
found = list(speed._expert_speeds(Ceilings(1e9, 1e9)))
pairs = zip(results[::2], results[1::2], strict=True)
off = [((ours - theirs).abs().max() / theirs.abs().max()).item() for ours, theirs in pairs]
rows = [[row.name, row.bound, row.achieved, row.of_ceiling, row.torch_milliseconds] for row in found]
print(json.dumps({"off": off, "rows": rows}))
"""


def test_the_script_times_the_kernel_and_torch_on_the_same_numbers() -> None:
    """In Triton's interpreter, at toy sizes, by a clock that always says a millisecond."""
    words = [sys.executable, "-c", SCRIPT, str(ROOT / "benchmarks"), str(ROOT / "tests/kernels/device")]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert max(found["off"]) < 0.02
    names = [f"toy {part}, {tokens} tokens" for tokens in (1, 70) for part in ("gate and up", "down")]
    assert [row[0] for row in found["rows"]] == names
    # One token: two operations a pair and matrix element, two bytes an element; many: 28 times as many operations.
    assert [row[1] for row in found["rows"]] == ["memory", "memory", "compute", "compute"]
    assert found["rows"][2][2] == pytest.approx(2 * 140 * 80 * 96 / 1e-3)
    assert found["rows"][2][3] == pytest.approx(2 * 140 * 80 * 96 / 1e-3 / 1e9)
    assert {row[4] for row in found["rows"]} == {1.0}
