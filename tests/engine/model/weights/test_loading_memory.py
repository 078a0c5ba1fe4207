"""Loading holds the weights once: its peak of memory against the weights, each in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from safetensors.torch import save_file

from paternoster_kernels.cpu.library import load_library

MOST = 1.2
"""Most memory, in times of the weights."""
HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, SHARDS = 1024, 3584, 16, 4, 4
LAYER = {
    "input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,), "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (256, HIDDEN), "self_attn.v_proj": (256, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INTERMEDIATE, HIDDEN), "mlp.up_proj": (INTERMEDIATE, HIDDEN),
    "mlp.down_proj": (HIDDEN, INTERMEDIATE),
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    layers: int
    vocab: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        layers = ((n, name, shape) for n in range(self.layers) for name, shape in LAYER.items())
        return {
            "model.embed_tokens.weight": (self.vocab, HIDDEN),
            **{f"model.layers.{n}.{name}.weight": shape for n, name, shape in layers},
            "model.norm.weight": (HIDDEN,),
            "lm_head.weight": (self.vocab, HIDDEN),
        }


LARGE, SMALL = Size(11, 8192), Size(1, 256)
"""319 MiB and 28 MiB in bfloat16; the largest tensor is a twentieth of the large one, as in models that are served."""


Measure = Callable[..., dict[str, float]]


@dataclass(frozen=True)
class Addresses:
    large: str
    small: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Addresses:
    found = [_write_folder(tmp_path_factory.mktemp("folder"), size) for size in (LARGE, SMALL)]
    return Addresses(*found)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Addresses:
    found = [_write_gguf(tmp_path_factory.mktemp("gguf") / "model.gguf", size) for size in (LARGE, SMALL)]
    return Addresses(*found)


def _write_folder(path: Path, size: Size) -> str:
    config = {
        "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": size.layers, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": 64,
        "vocab_size": size.vocab, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "tie_word_embeddings": False,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text("{}")
    shapes = size.shapes()
    names = list(shapes)
    for shard in range(SHARDS):
        own = names[shard * len(names) // SHARDS : (shard + 1) * len(names) // SHARDS]
        tensors = {name: torch.full(shapes[name], 0.01, dtype=torch.bfloat16) for name in own}
        save_file(tensors, path / f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors")
    return path.as_uri()


def _write_gguf(path: Path, size: Size) -> str:
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(2048)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(size.layers)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e4)
    writer.add_vocab_size(size.vocab)
    names, kind = get_tensor_name_map(MODEL_ARCH.LLAMA, size.layers), GGMLQuantizationType.Q8_0
    # A scale of float16 and 32 numbers.
    block = np.frombuffer(np.float16(0.01).tobytes() + bytes(range(32)), np.uint8)
    for name, shape in size.shapes().items():
        stored = names.get_name(name, try_suffixes=(".weight",))
        if len(shape) == 1:
            writer.add_tensor(stored, np.ones(shape, np.float32))
        else:
            writer.add_tensor(stored, np.tile(block, (shape[0], shape[1] // 32)), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.as_uri()


@pytest.fixture(scope="module")
def measuring() -> Iterator[subprocess.Popen[str]]:
    """What forks for each model that it reads, so that torch is imported once."""
    # What the allocator keeps of freed memory for itself, up to 64 MiB whatever the model, is given back at once.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20)}
    command = [sys.executable, "-P", str(Path(__file__).with_name("measure_load.py"))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield process


@pytest.fixture
def measured(measuring: subprocess.Popen[str]) -> Measure:
    def measure(
        model: Addresses, dtype: str, rank: int = 0, ranks: int = 1, quantization: str = "none"
    ) -> dict[str, float]:
        assert measuring.stdin is not None
        assert measuring.stdout is not None
        print(
            json.dumps([model.large, model.small, dtype, rank, ranks, quantization]), file=measuring.stdin, flush=True
        )
        line = measuring.stdout.readline()
        assert line, f"exit code {measuring.wait()}"
        found: dict[str, float] = json.loads(line)
        assert found["weights"] > (300 if quantization == "none" else 150) * 2**20 / ranks
        assert 0.9 < found["held"] / found["weights"] < 1.1, found
        return found

    return measure


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "quantization"), [("bfloat16", "none"), ("float32", "none"), ("bfloat16", "int8")])
@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_the_weights_are_in_memory_once(
    form: str, dtype: str, quantization: str, request: pytest.FixtureRequest, measured: Measure
) -> None:
    found = measured(request.getfixturevalue(form), dtype, quantization=quantization)
    assert found["peak"] <= MOST, found


@pytest.mark.slow
@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_a_rank_holds_its_part_alone(form: str, request: pytest.FixtureRequest, measured: Measure) -> None:
    found = measured(request.getfixturevalue(form), "float32", rank=1, ranks=2)
    assert found["peak"] <= MOST, found


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_blocks_take_what_the_file_does(ranks: int, gguf: Addresses, measured: Measure) -> None:
    if load_library() is None:
        pytest.skip("no native operations here")
    found = measured(gguf, "bfloat16", rank=ranks - 1, ranks=ranks, quantization="auto")
    assert found["peak"] <= MOST, found
