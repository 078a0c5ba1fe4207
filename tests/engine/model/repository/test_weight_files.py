"""Which of a folder's files are the model's weights: index and shards, split files, two formats beside each other."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine.families import tiny_families
from tests.engine.model.repository.tiny_repository import change_config, write_repository

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint, open_checkpoint
from paternoster_engine.model.checkpoints.shapes import check_shapes, expected_shapes
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.source import resolve_source

INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_repository(tmp_path_factory.mktemp("sharded") / "m", shards=3)
    assert (folder / INDEX).exists()
    return folder


@pytest.fixture
def sharded(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "m"))


def opened(folder: Path) -> Checkpoint:
    checkpoint = open_checkpoint(resolve_source(folder.as_uri()))
    check_shapes(checkpoint)
    return checkpoint


def shards_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("model-*.safetensors"))


def test_shards_are_read_by_their_index(sharded: Path) -> None:
    checkpoint, tensors = opened(sharded), {}
    for shard in shards_of(sharded):
        tensors |= load_file(shard)
    for name, _ in expected_shapes(checkpoint.config):
        assert torch.equal(checkpoint.get_tensor(name)[()], tensors[name])
    assert not checkpoint.notes


def test_a_missing_shard_is_named_by_its_file(sharded: Path) -> None:
    (first, second, *_) = shards_of(sharded)
    second.unlink()
    with pytest.raises(ModelError) as refused:
        opened(sharded)
    assert str(refused.value) == f"{INDEX} names '{second.name}': must be a file in {sharded}"
    (sharded / INDEX).unlink()
    with pytest.raises(ModelError, match=f"but not {second.name}: must have every part"):
        opened(sharded)
    assert first.exists()


def test_shards_without_an_index_are_read(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    assert not opened(sharded).notes


def test_files_that_the_index_does_not_name_are_told(sharded: Path) -> None:
    save_file({"model.norm.weight": torch.zeros(32)}, sharded / "model-extra.safetensors")
    save_file({"layers.0.wq.weight": torch.zeros(32)}, sharded / "consolidated.safetensors")
    (sharded / "pytorch_model.bin").touch()
    (sharded / "m.gguf").touch()
    checkpoint = opened(sharded)
    assert torch.equal(checkpoint.get_tensor("model.norm.weight")[()], torch.ones(32))
    (note,) = checkpoint.notes
    assert note.startswith(
        "consolidated.safetensors, m.gguf, model-extra.safetensors, pytorch_model.bin are not read: "
    )


def test_one_file_wins_over_an_index_that_does_not_name_it(sharded: Path, tmp_path: Path) -> None:
    """One file wins in transformers, too."""
    whole = write_repository(tmp_path / "whole", initializer_range=0.1) / "model.safetensors"
    shutil.copy(whole, sharded)
    checkpoint = opened(sharded)
    name = "model.embed_tokens.weight"
    assert torch.equal(checkpoint.get_tensor(name)[()], load_file(whole)[name])
    assert f"{INDEX} is not read: it names none of model.safetensors" in checkpoint.notes


def test_a_variant_beside_is_not_read(tmp_path: Path) -> None:
    folder = write_repository(tmp_path)
    shutil.copy(folder / "model.safetensors", folder / "model.fp16.safetensors")
    assert opened(folder).notes == ["model.fp16.safetensors is not read: the model is model.safetensors"]


def test_a_tensor_in_two_files_is_refused(sharded: Path) -> None:
    """No file says which of both is the model's."""
    first, second, *_ = shards_of(sharded)
    name, tensor = next(iter(load_file(first).items()))
    save_file(load_file(second) | {name: tensor + 1}, second)
    with pytest.raises(ModelError, match=f"the tensor '{name}' is in {first.name} and in {second.name}"):
        opened(sharded)


def test_tensors_that_nothing_reads_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_repository(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    more = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(8) for i in range(2)}
    save_file({**tensors, **more, "vision.w": torch.ones(1)}, folder / "model.safetensors")
    with caplog.at_level(logging.WARNING):
        build_engine(EngineArgs(model=folder.as_uri(), kv_cache_memory=2**22, threads=1))
    assert (
        "3 tensors of its files are not used: model.layers.*.self_attn.rotary_emb.inv_freq (2), vision.w" in caplog.text
    )


@pytest.mark.parametrize(
    ("files", "note"),
    [
        ({"adapter_config.json": {}}, "adapter_config.json is not read: the model is served without the adapter"),
        (
            {"hf_quant_config.json": {"quantization": {"quant_algo": None}}},
            None,
        ),
    ],
)
def test_files_that_change_nothing_are_told(files: dict[str, Any], note: str | None, tmp_path: Path) -> None:
    assert opened(write_repository(tmp_path, files)).notes == ([] if note is None else [note])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architectures": ["LlamaForSequenceClassification"]}, "architectures is 'LlamaForSequenceClassification'"),
        ({"architectures": ["LlamaForRewardModel"]}, "architectures is 'LlamaForRewardModel': must be of a language"),
        ({"compression_config": {"quant_method": "bitnet"}}, "quantization_config is .*'bitnet'"),
        ({"text_config": {"quantization_config": {"quant_method": "awq", "bits": 8}}}, "quantization_config is"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "'quant_algo': 'NVFP4'"),
    ],
)
def test_a_config_of_another_kind_of_model_is_refused(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = write_repository(tmp_path)
    change_config(folder, **fields)
    with pytest.raises(ModelError, match=message):
        open_checkpoint(resolve_source(folder.as_uri()))


def test_code_of_the_repository_is_told(tmp_path: Path) -> None:
    folder = write_repository(tmp_path)
    change_config(folder, auto_map={"AutoModelForCausalLM": "m.M"})
    (note,) = opened(folder).notes
    assert note.startswith("config.json: auto_map is not used")


def test_numbers_of_modelopt_are_read_by_their_own_file(tmp_path: Path) -> None:
    """hf_quant_config.json beside a config.json that says nothing of it."""
    folder = write_repository(tmp_path, {"hf_quant_config.json": {"quantization": {"quant_algo": "FP8"}}})
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    packed = {
        name: tensors[name].to(torch.float8_e4m3fn),
        name.replace("weight", "weight_scale"): torch.tensor(0.5),
        name.replace("weight", "input_scale"): torch.tensor(1.0),
    }
    save_file(tensors | packed, folder / "model.safetensors")
    checkpoint = opened(folder)
    assert torch.equal(checkpoint.get_tensor(name)[()], packed[name].float() * 0.5)
    assert checkpoint.notes == ["1 tensors of its files are not used: model.layers.*.mlp.up_proj.input_scale"]
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    with pytest.raises(ModelError, match=r"hf_quant_config.json: quantization: quant_algo is 'NVFP4': must be FP8"):
        opened(folder)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("adapter_config.json", "adapter_model.safetensors"), "adapter_config.json is of an adapter"),
        (("config.json", "tokenizer.model", "model.safetensors"), "tokenizer.model is not read"),
        (("config.json", "tokenizer.json", "pytorch_model.bin"), "weights in pytorch_model.bin are not read"),
        (("params.json", "tekken.json", "consolidated.safetensors"), "params.json is of Mistral's or Meta's own"),
    ],
)
def test_a_folder_of_another_kind_is_told_what_to_do(names: tuple[str, ...], words: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(ModelError, match=f"the folder has no .*: .*{words}"):
        resolve_source(tmp_path.as_uri())


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files split like those of the gguf package."""
    folder = tmp_path_factory.mktemp("split")
    model = tiny_families.make("llama")
    (folder / "whole").mkdir()
    tiny_families.save_gguf(model, folder / "whole" / "m.gguf", "llama")
    tiny_families.save_gguf(model, folder / "m.gguf", "llama", tensors_a_part=20)
    return folder


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("m-*.gguf"))


def test_a_split_gguf_file_is_one_model(split: Path) -> None:
    whole = opened(split / "whole" / "m.gguf")
    assert len(parts(split)) == 2
    for address in (*parts(split), split):
        checkpoint = opened(address)
        assert checkpoint.config == whole.config
        assert not checkpoint.notes
        for name, _ in expected_shapes(whole.config):
            assert torch.equal(checkpoint.get_tensor(name)[()], whole.get_tensor(name)[()])


def test_parts_that_do_not_belong_together_are_refused(split: Path, tmp_path: Path) -> None:
    first, second = parts(split)
    shutil.copy(first, tmp_path)
    with pytest.raises(ModelError, match=f"{first.name} is one of 2 parts, and there is no {second.name} beside it"):
        opened(tmp_path)
    shutil.copy(first, tmp_path / second.name)
    with pytest.raises(ModelError, match=f"{second.name}: split.no is 0: must be 1, as its name says"):
        opened(tmp_path / first.name)
    shutil.copy(first, tmp_path / "alone.gguf")
    with pytest.raises(ModelError, match=r"alone.gguf: split.count is 2: must be 1, as its name says"):
        opened(tmp_path / "alone.gguf")


def test_a_projector_beside_a_model_is_no_second_model(split: Path, tmp_path: Path) -> None:
    shutil.copy(split / "whole" / "m.gguf", tmp_path / "m.gguf")
    (tmp_path / "mmproj-m.gguf").touch()
    assert resolve_source(tmp_path.as_uri()).path == tmp_path / "m.gguf"
