"""Files of adapters: their identity, and what is refused by name before anything changes."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tests.engine.adapters import peft_models

from paternoster_engine.model.adapters.adapter_config import read_adapter_config
from paternoster_engine.model.adapters.lora_adapter import LoraAdapter, OpenAdapter, list_modules, open_adapter
from paternoster_engine.model.checkpoints.safetensors_checkpoint import SafetensorsCheckpoint
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.errors import ModelError

LIST = ["q_proj", "v_proj"]
GOOD: dict[str, Any] = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": LIST}
Q, PREFIX = "self_attn.q_proj", "base_model.model.model.layers"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    folder = peft_models.save_llama(tmp_path_factory.mktemp("model"), peft_models.ODD)
    return SafetensorsCheckpoint(folder).config


def _tensors(config: ModelConfig, rank: int = 4, seed: int = 0) -> dict[str, torch.Tensor]:
    generator, found = torch.Generator().manual_seed(seed), {}
    for name, module in list_modules(config).items():
        if name.rpartition(".")[2] in LIST:
            found[f"base_model.model.{name}.lora_A.weight"] = torch.randn(rank, module.inputs, generator=generator)
            found[f"base_model.model.{name}.lora_B.weight"] = torch.randn(module.outputs, rank, generator=generator)
    return found


@pytest.fixture
def folder(config: ModelConfig, tmp_path: Path) -> Path:
    return _write(tmp_path, GOOD, _tensors(config))


def _write(folder: Path, fields: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Path:
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "adapter_model.safetensors")
    return folder


def _open(path: Path, config: ModelConfig, most: int = 2**20) -> OpenAdapter:
    return open_adapter(path, most, config=config, dtype=torch.float32, device=torch.device("cpu"))


def _read(path: Path, config: ModelConfig) -> LoraAdapter:
    return _open(path, config).read()


def test_an_adapter_is_known_by_its_numbers_and_scale(folder: Path, config: ModelConfig, tmp_path: Path) -> None:
    adapter = _read(folder, config)
    assert adapter.digest == _read(folder / "adapter_model.safetensors", config).digest
    assert adapter.nbytes == _open(folder, config).nbytes == sum(t.nbytes for t in _tensors(config).values())
    digests = {adapter.digest}
    for fields, seed in ((GOOD, 1), ({**GOOD, "lora_alpha": 9}, 0), ({**GOOD, "use_rslora": True}, 0)):
        digests.add(_read(_write(folder, fields, _tensors(config, seed=seed)), config).digest)
    assert len(digests) == 4
    renamed = {**GOOD, "base_model_name_or_path": "other/name", "lora_dropout": 0.1}
    assert _read(_write(folder, renamed, _tensors(config)), config).digest == adapter.digest


def test_what_takes_more_than_the_bound_is_refused_before_it_is_read(folder: Path, config: ModelConfig) -> None:
    size = _read(folder, config).nbytes
    assert _open(folder, config, size).nbytes == size
    with pytest.raises(ModelError, match=f"takes more than {size - 1} bytes: must be at most max_adapter_memory"):
        _open(folder, config, size - 1)


@pytest.mark.parametrize("size", [0, 8, 5000])
def test_a_file_that_becomes_shorter_is_refused(size: int, folder: Path, config: ModelConfig) -> None:
    """A process that has the file mapped would be ended by a signal."""
    opened = _open(folder, config)
    os.truncate(folder / "adapter_model.safetensors", size)
    with pytest.raises(ModelError, match="became shorter while it was read"):
        opened.read()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("peft_type", "IA3", "peft_type is 'IA3': must be LORA"),
        ("use_dora", True, "use_dora is True: must be absent or false"),
        ("modules_to_save", ["lm_head"], r"modules_to_save is \['lm_head'\]: must be absent or false"),
        ("lora_bias", True, "lora_bias is True"),
        ("bias", "all", "bias is 'all': must be none"),
        ("fan_in_fan_out", True, "fan_in_fan_out is True"),
        ("trainable_token_indices", [1], "trainable_token_indices"),
        ("target_parameters", ["mlp.experts.gate_up_proj"], "target_parameters"),
        ("layer_replication", [[0, 2]], "layer_replication"),
        ("alora_invocation_tokens", [5], "alora_invocation_tokens"),
        ("init_lora_weights", "pissa_niter_4", "init_lora_weights is 'pissa_niter_4'"),
        ("r", 10_000, "r is 10000: must be a whole number from 1 to 512"),
        ("r", 0, "r is 0"),
        ("r", "8", "r is '8'"),
        ("lora_alpha", float("nan"), "lora_alpha is nan"),
        ("lora_alpha", 1e300, r"lora_alpha is 1e\+300"),
        ("rank_pattern", {"q_proj": 10_000}, "rank_pattern: q_proj is 10000: must be a whole number from 1 to 512"),
        ("rank_pattern", {"(": 4}, "must be an expression"),
        ("rank_pattern", {f"q_proj{i}": 4 for i in range(5000)}, "at most 4096"),
        ("alpha_pattern", {f"q_proj{'|b' * i}": 4 for i in range(40)}, "of which 16 are no plain names"),
        ("alpha_pattern", {"q_proj": "4"}, "alpha_pattern: q_proj is '4'"),
        ("alpha_pattern", [4], r"alpha_pattern is \[4\]: must be an object"),
        ("target_modules", "(?=q).*", "target_modules is .*must be a list of names or an expression"),
        ("target_modules", {"q_proj": 1}, "target_modules is .*must be a list"),
        ("target_modules", ["q_proj", "all-linear"], "all-linear alone"),
        ("layers_to_transform", "all", "layers_to_transform is 'all'"),
        ("layers_to_transform", [1.5], "layers_to_transform"),
    ],
)
def test_a_field_that_is_not_what_it_may_be(
    field: str, value: object, message: str, folder: Path, config: ModelConfig
) -> None:
    (folder / "adapter_config.json").write_text(json.dumps({**GOOD, field: value}))
    with pytest.raises(ModelError, match=message):
        _open(folder, config)


def _first_named(tensors: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    (_, tensor), *others = tensors.items()
    return {name: tensor, **dict(others)}


Change = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
DOWN = f"{PREFIX}.0.{Q}.lora_A.weight"
CHANGES: dict[str, tuple[Change, str]] = {
    "nothing": (lambda tensors: {}, "has no tensors"),
    "half": (lambda tensors: {name: t for name, t in tensors.items() if name != DOWN}, "has no .*lora_A.weight"),
    "a missing module": (
        lambda tensors: {name: t for name, t in tensors.items() if f".0.{Q}" not in name},
        "has no tensors for model.layers.0.self_attn.q_proj, which target_modules",
    ),
    "another width": (lambda tensors: {**tensors, DOWN: torch.zeros(4, 61)}, r"shape \[4, 61\]: must be \[4, 60\]"),
    "another rank": (lambda tensors: {**tensors, DOWN: torch.zeros(5, 60)}, r"must be \[4, 60\]"),
    "no matrix": (lambda tensors: {**tensors, DOWN: torch.zeros(240)}, "shape"),
    "whole numbers": (lambda tensors: {**tensors, DOWN: torch.zeros(4, 60, dtype=torch.int32)}, "is of I32"),
    "a layer beyond": (
        lambda tensors: _first_named(tensors, f"{PREFIX}.3.{Q}.lora_A.weight"),
        "must be lora_A.weight or lora_B.weight of a module of the model",
    ),
    "another model's module": (
        lambda tensors: _first_named(tensors, "base_model.model.h.0.attn.c_attn.lora_A.weight"),
        "of a module of the model",
    ),
    "a module that is no target": (
        lambda tensors: _first_named(tensors, f"{PREFIX}.0.mlp.up_proj.lora_A.weight"),
        "which target_modules of adapter_config.json does not name",
    ),
    "embeddings": (
        lambda tensors: _first_named(tensors, "base_model.model.model.embed_tokens.lora_embedding_A"),
        "adapters of embeddings and of the output projection are not built in",
    ),
    "the output projection": (
        lambda tensors: _first_named(tensors, "base_model.model.lm_head.lora_A.weight"),
        "adapters of embeddings and of the output projection are not built in",
    ),
    "DoRA": (
        lambda tensors: _first_named(tensors, f"{PREFIX}.0.{Q}.lora_magnitude_vector"),
        "DoRA is not built in",
    ),
    "a bias": (lambda tensors: _first_named(tensors, f"{PREFIX}.0.{Q}.lora_B.bias"), "must be lora_A.weight"),
    "a name without end": (lambda tensors: _first_named(tensors, "x" * 10_000), "has 'xxxx"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_tensors_that_do_not_fit(change: str, config: ModelConfig, tmp_path: Path) -> None:
    apply, message = CHANGES[change]
    _write(tmp_path, GOOD, apply(_tensors(config)))
    with pytest.raises(ModelError, match=message) as caught:
        _open(tmp_path, config)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e39])
def test_numbers_that_are_none(number: float, config: ModelConfig, tmp_path: Path) -> None:
    tensors = _tensors(config)
    tensors[DOWN] = tensors[DOWN].double()
    tensors[DOWN][2, 3] = number
    _write(tmp_path, GOOD, tensors)
    with pytest.raises(ModelError, match=r"model.layers.0.self_attn.q_proj.lora_A.weight has NaN or infinite numbers"):
        _read(tmp_path, config)


def test_folders_that_peft_did_not_write(folder: Path, config: ModelConfig, tmp_path: Path) -> None:
    weights, config_file = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    data = weights.read_bytes()
    weights.write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match="is not a readable safetensors file"):
        _open(folder, config)
    weights.rename(folder / "adapter_model.bin")
    with pytest.raises(ModelError, match=r"but adapter_model\.bin, which is a pickle: must have safetensors"):
        _open(folder, config)
    for text in ("[]", "{", '{"r": 1}', "\ud800".encode("utf-8", "surrogatepass").decode("latin1"), "[" * 100_000):
        config_file.write_text(text)
        with pytest.raises(ModelError):
            _open(folder, config)
    config_file.unlink()
    for path in (folder, folder / "absent", folder / "absent.safetensors", Path("/proc/self/mem")):
        with pytest.raises(ModelError, match=r"has no adapter_config.json: must be a folder that PEFT wrote"):
            _open(path, config)
    config_file.symlink_to("/etc/hostname")
    with pytest.raises(ModelError, match="is a link out of the model's folder"):
        _open(folder, config)


def test_fields_of_peft_that_change_nothing_are_passed_over() -> None:
    fields = {
        **GOOD,
        "inference_mode": True,
        "task_type": "CAUSAL_LM",
        "lora_dropout": 0.5,
        "bias": None,
        "use_dora": False,
    }
    assert read_adapter_config(fields).scale_of("model.layers.0.self_attn.q_proj", 4) == 2.0
