"""Decoders without a causal mask as models that embed: vectors of transformers for the same files, or a refusal."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.embeddings import tiny_encoders as tiny_files
from tests.engine.embeddings.test_decoders import embed, prompts, write_tokenizer
from tests.engine.families import tiny_families as tiny
from torch.nn import functional

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.build_embedder import check_generates, for_embedding
from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.checkpoints.gguf_checkpoint import POOLING_TYPES
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.encoders.encoder import TextBatch
from paternoster_engine.model.encoders.text_decoder import TextDecoder
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.layers import text_attention
from paternoster_engine.model.pooling import PoolingMode
from paternoster_engine.model.source import resolve_source
from paternoster_engine.runner.pooling_runner import EncoderRunner

MODES = {
    "pooling_mode_lasttoken": lambda hidden: hidden[-1],
    "pooling_mode_mean_tokens": lambda hidden: hidden.mean(0),
    "pooling_mode_cls_token": lambda hidden: hidden[0],
}
NOT_CAUSAL = {"is_causal": False}
BOTH_WAYS = {"use_bidirectional_attention": True}


def write_model(folder: Path, name: str, config: dict[str, Any], mode: str = "pooling_mode_lasttoken") -> None:
    """The family's tiny model with ``config`` in its config.json, and with sentence-transformers' files."""
    tiny.make(name).save_pretrained(folder)
    change_config(folder, config)
    write_tokenizer(folder)
    tiny_files.write_modules(folder, mode)


def change_config(folder: Path, config: dict[str, Any]) -> None:
    own = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(own | config))


def their_vectors(folder: Path, mode: str, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    with torch.inference_mode():
        hidden = [model(torch.tensor([prompt])).last_hidden_state[0] for prompt in prompts()]
    return [functional.normalize(MODES[mode](states), dim=0) for states in hidden]


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("qwen3", NOT_CAUSAL | {"architectures": ["Qwen3BidirectionalModel"]}),
        ("qwen2", NOT_CAUSAL),
        ("qwen2, windows", NOT_CAUSAL),
        ("llama, 3.1", NOT_CAUSAL),
        ("mistral", NOT_CAUSAL),
        ("mixtral", NOT_CAUSAL),
        ("granite", NOT_CAUSAL),
        ("smollm3", NOT_CAUSAL),
        ("olmo2", NOT_CAUSAL),
        ("phi3", NOT_CAUSAL),
        ("gemma2", NOT_CAUSAL),
        ("gemma3_text", NOT_CAUSAL),
        ("gemma3_text", BOTH_WAYS),
        ("gemma3_text", BOTH_WAYS | NOT_CAUSAL),
        ("gpt_oss", NOT_CAUSAL),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_vectors_are_those_of_transformers(
    name: str, config: dict[str, Any], mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path, name, config, mode)
    monkeypatch.setattr(text_attention, "QUERIES", 16)
    found = embed(tmp_path, prompts())
    for vector, expected in zip(found, their_vectors(tmp_path, mode), strict=True):
        torch.testing.assert_close(vector, expected, atol=2e-4, rtol=2e-4)


def test_whole_prompts_in_steps_of_their_own(tmp_path: Path) -> None:
    """Whatever else is in a step, and although two prompts begin alike."""
    write_model(tmp_path, "qwen3", NOT_CAUSAL)
    engine, _, model = build_engine(EngineArgs(model=tmp_path.as_uri(), threads=1, dtype="float32"))
    assert isinstance(engine.runner, EncoderRunner)
    assert model.context_length == tiny.CONTEXT
    alone = [vector for prompt in prompts() for vector in embed(tmp_path, [prompt])]
    for vector, other in zip(embed(tmp_path, prompts()), alone, strict=True):
        torch.testing.assert_close(vector, other, atol=1e-5, rtol=1e-5)


def test_bfloat16_is_as_near_as_that_of_transformers(tmp_path: Path) -> None:
    write_model(tmp_path, "gemma3_text", BOTH_WAYS)
    exact = embed(tmp_path, prompts())

    def least_cosine(vectors: list[torch.Tensor]) -> float:
        return min(float(vector.float() @ other) for vector, other in zip(vectors, exact, strict=True))

    theirs = least_cosine(their_vectors(tmp_path, "pooling_mode_lasttoken", torch.bfloat16))
    assert least_cosine(embed(tmp_path, prompts(), dtype="bfloat16")) > theirs - 0.02


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("qwen3", NOT_CAUSAL, "config.json: is_causal is False: must have a causal mask to generate text"),
        ("gemma3_text", BOTH_WAYS, "use_bidirectional_attention is True: must have a causal mask to generate text"),
        ("qwen3", {"is_causal": "no"}, "config.json: is_causal is 'no': must be true or false"),
        ("gemma3_text", {"use_bidirectional_attention": "vision"}, "is 'vision': must be true or false"),
        (
            "qwen3",
            {"architectures": ["Qwen3BidirectionalModel"]},
            "must be of a decoder that generates, or with",
        ),
    ],
)
def test_it_does_not_generate(name: str, config: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_model(tmp_path, name, config)
    for args in ({"task": "generate"}, {}):
        if not args:
            (tmp_path / "modules.json").unlink()
        with pytest.raises(ModelError, match=message):
            build_engine(EngineArgs(model=tmp_path.as_uri(), threads=1, **args))


def test_it_is_no_draft(tmp_path: Path) -> None:
    for folder, config in ((tmp_path / "model", {}), (tmp_path / "draft", NOT_CAUSAL)):
        folder.mkdir()
        write_model(folder, "llama", config)
        (folder / "modules.json").unlink()
    args = {"draft_model": (tmp_path / "draft").as_uri(), "speculative": "draft", "kv_cache_memory": 2**22}
    with pytest.raises(ModelError, match="is_causal is False: must have a causal mask"):
        build_engine(EngineArgs(model=(tmp_path / "model").as_uri(), threads=1, device="cpu", **args))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"tensor_parallel_size": 2}, "tensor_parallel_size is 2: must be 1 for a model that embeds"),
        ({"batch_invariant": True}, "batch_invariant is True: must be false for a model that reads texts in both"),
        ({"quantization": "int8"}, "quantization is 'int8': must be 'auto' or 'none' for a model that embeds"),
    ],
)
def test_what_it_cannot(args: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_model(tmp_path, "qwen3", NOT_CAUSAL)
    with pytest.raises(ModelError, match=message):
        build_engine(EngineArgs(model=tmp_path.as_uri(), **args))


def write_gguf(folder: Path, name: str, **keys: int | bool) -> Path:
    """The family's tiny model as a GGUF file with further ``keys``."""
    architecture = tiny.GGUF[name]
    tiny.save_gguf(tiny.make(name), folder / "plain.gguf", architecture)
    return tiny.add_to_gguf(
        folder / "plain.gguf", {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
    )


@pytest.mark.parametrize("mode", ["last", "mean", "cls"])
def test_gguf_files_that_are_not_causal(mode: PoolingMode, tmp_path: Path) -> None:
    number = next(number for number, name in POOLING_TYPES.items() if name == mode)
    path = write_gguf(tmp_path, "qwen3", attention__causal=False, pooling_type=number)
    checkpoint = open_checkpoint(resolve_source(path.as_uri()))
    embeds = for_embedding(EngineArgs(model=path.as_uri(), task="embed"), checkpoint)
    model = TextDecoder(Decoder(embeds.config, embeds.get_tensor, torch.float32, tiny.CPU), tiny.CPU)
    tokens = [*range(20, 60), 7, 9]
    positions, types = torch.arange(42), torch.zeros(42)
    with torch.inference_mode():
        (found,) = model.compute_vectors(TextBatch(torch.tensor(tokens), positions, types, [42]))
        theirs = tiny.make("qwen3")
        theirs.config.is_causal = False
        hidden = theirs.model(torch.tensor([tokens])).last_hidden_state[0]
    pooled = {"last": hidden[-1], "mean": hidden.mean(0), "cls": hidden[0]}[mode]
    torch.testing.assert_close(found, functional.normalize(pooled, dim=0), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("qwen3", {"attention__causal": False}, "qwen3.attention.causal is False: must have a causal mask to generate"),
        (
            "gemma2",
            {"attention__causal": False},
            "attention.causal is False: must be true for a model with att",
        ),
        ("qwen3", {"attention__causal": 0}, "attention.causal is 0: must be true or false"),
    ],
)
def test_gguf_files_that_do_not_generate(name: str, keys: dict[str, int | bool], message: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(resolve_source(write_gguf(tmp_path, name, **keys).as_uri()))
    with pytest.raises(ModelError, match=message):
        check_generates(checkpoint.config)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (1, "pooling is 'mean': must be 'last' for a decoder, whose last token has seen all"),
        (4, "pooling_type is 4: must be 0 .none., 1 .mean., 2 .cls., 3 .last."),
    ],
)
def test_poolings_of_gguf_files_that_are_refused(number: int, message: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(resolve_source(write_gguf(tmp_path, "qwen3", pooling_type=number).as_uri()))
    with pytest.raises(ModelError, match=message):
        for_embedding(EngineArgs(model="file:///model.gguf", task="embed"), checkpoint)
