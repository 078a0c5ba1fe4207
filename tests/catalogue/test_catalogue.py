"""The manifests of examples/models: their figures are those of today's code, and their models those that are meant."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from paternoster_engine.fit.memory import count_parameters, find_fits, sequence_bytes
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.families.read import config_from_hf
from paternoster_operator.api.manifest import load_resources

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = {path.stem: path for path in (ROOT / "tests/catalogue/configs").glob("*.json")}
EMBEDS = {"minilm"}
"""What replicas of these carry is not simulated."""
MANIFESTS = {path.stem: path for path in (ROOT / "examples/models").glob("*.yaml") if path.stem not in EMBEDS}
BILLIONS = {
    "gemma-3-12b": 11.77,
    "gpt-oss-20b": 20.91,
    "llama-3.1-70b": 70.55,
    "llama-3.1-8b": 8.03,
    "mistral-7b": 7.25,
    "phi-4": 14.66,
    "qwen3-30b-a3b": 30.53,
    "qwen3-8b": 8.19,
    "smollm2-135m": 0.1345,
}
"""Parameters that publishers state; of Gemma those of the text, without 0.42 of what sees."""


def config(name: str) -> ModelConfig:
    return config_from_hf(json.loads(CONFIGS[name].read_text()), name)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_figures_are_those_of_today() -> None:
    command = [sys.executable, "scripts/catalogue", "--check", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_each_manifest_has_its_model() -> None:
    assert CONFIGS.keys() == MANIFESTS.keys() == BILLIONS.keys()


@pytest.mark.parametrize("name", sorted(BILLIONS))
def test_the_sizes_make_the_model_that_was_published(name: str) -> None:
    assert count_parameters(config(name)) / 1e9 == pytest.approx(BILLIONS[name], rel=0.001)


@pytest.mark.parametrize("name", sorted(BILLIONS))
def test_the_longest_sequence_fits(name: str) -> None:
    (resource,) = load_resources(MANIFESTS[name])
    engine, gpus = resource.spec.engine, resource.spec.resources.gpu.count
    assert engine.max_model_len is not None
    assert engine.max_model_len <= config(name).context_length
    if not gpus:
        assert engine.kv_cache_memory is not None
        return
    needed = sequence_bytes(config(name), engine.max_model_len, torch.bfloat16)
    rooms = [fit.memory for fit in find_fits(config(name), torch.bfloat16, 0.9) if fit.count == gpus]
    assert max(rooms) > 2 * needed
    budget, autoscaling = resource.spec.budget.max_gpus, resource.spec.autoscaling
    assert budget is not None
    assert autoscaling is not None
    assert autoscaling.max_replicas * gpus <= budget
