"""A tiny model that can be served, in both file formats, and a loader with bounds on time and memory."""

import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from safetensors.torch import save_file

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.model.vocabulary.spelling import BYTE_OF

TOKENS = [*sorted(BYTE_OF), "ab", "<|end|>"]
VOCAB, HIDDEN, MLP, HEADS, KV_HEADS = len(TOKENS), 32, 64, 2, 1
CONFIG = {
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": MLP,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "eos_token_id": VOCAB - 1,
}
MEMORY = 2 * 2**30
"""Bytes of address space that loading a model of 40 KB may take; a believed count takes far more."""


def weights() -> dict[str, tuple[str, np.ndarray]]:
    """GGUF name -> Hugging Face name, values."""
    kv = HIDDEN // HEADS * KV_HEADS
    shapes = {
        "token_embd": ("model.embed_tokens", (VOCAB, HIDDEN)),
        "output_norm": ("model.norm", (HIDDEN,)),
        "blk.0.attn_norm": ("model.layers.0.input_layernorm", (HIDDEN,)),
        "blk.0.ffn_norm": ("model.layers.0.post_attention_layernorm", (HIDDEN,)),
        "blk.0.attn_q": ("model.layers.0.self_attn.q_proj", (HIDDEN, HIDDEN)),
        "blk.0.attn_k": ("model.layers.0.self_attn.k_proj", (kv, HIDDEN)),
        "blk.0.attn_v": ("model.layers.0.self_attn.v_proj", (kv, HIDDEN)),
        "blk.0.attn_output": ("model.layers.0.self_attn.o_proj", (HIDDEN, HIDDEN)),
        "blk.0.ffn_gate": ("model.layers.0.mlp.gate_proj", (MLP, HIDDEN)),
        "blk.0.ffn_up": ("model.layers.0.mlp.up_proj", (MLP, HIDDEN)),
        "blk.0.ffn_down": ("model.layers.0.mlp.down_proj", (HIDDEN, MLP)),
    }
    random = np.random.default_rng(0)
    return {
        f"{name}.weight": (f"{theirs}.weight", random.standard_normal(shape, np.float32))
        for name, (theirs, shape) in shapes.items()
    }


def write_gguf(path: Path, kind: str = "gpt2") -> None:
    """``kind``: of its vocabulary, ``gpt2`` or ``llama``."""
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(kind)
    if kind == "gpt2":
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(TOKENS)
        writer.add_token_merges(["a b"])
        writer.add_token_types([1] * (VOCAB - 1) + [3])
    else:
        writer.add_token_list([f"<0x{byte:02X}>" for byte in range(256)] + ["ab", "<|end|>"])
        writer.add_token_scores([0.0] * VOCAB)
        writer.add_token_types([6] * 256 + [1, 3])
        writer.add_bos_token_id(0)
        writer.add_add_bos_token(True)
        writer.add_add_space_prefix(True)
    writer.add_eos_token_id(VOCAB - 1)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")
    for name, (_, values) in weights().items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tokenizer_document() -> dict[str, object]:
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": VOCAB - 1,
                "content": "<|end|>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(TOKENS[:-1])},
            "merges": [["a", "b"]],
        },
    }


def write_folder(folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_document()))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    tensors = {name: torch.from_numpy(values) for name, values in weights().values()}
    save_file(tensors, folder / "model.safetensors")


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write_gguf(path)
    return path.read_bytes()


@pytest.fixture(scope="session")
def tiny_pieces(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Pieces of SentencePiece's vocabulary."""
    path = tmp_path_factory.mktemp("pieces") / "model.gguf"
    write_gguf(path, "llama")
    return path.read_bytes()


@pytest.fixture(scope="session")
def sound_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("safetensors") / "tiny"
    write_folder(folder)
    return folder


@pytest.fixture
def folder(sound_folder: Path, tmp_path: Path) -> Path:
    """A copy that the test may break."""
    return Path(shutil.copytree(sound_folder, tmp_path / "tiny"))


Load = Callable[[Path], None]


@pytest.fixture
def load() -> Load:
    """Load the model as ``paternoster serve`` does; raises what that raises. ``MemoryError`` beyond ``MEMORY``."""

    def load_within_bounds(path: Path) -> None:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, hard))
        try:
            build_engine(
                EngineArgs(model=path.as_uri(), device="cpu", dtype="float32", threads=1, kv_cache_memory=2**20)
            )
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    return load_within_bounds
