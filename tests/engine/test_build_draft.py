"""A draft model that fits is used, and one that does not is refused before anything is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from safetensors.torch import save_file

from gpu.engines.random_weights import random_weights
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine import build_draft
from paternoster_engine.build import build_engine
from paternoster_engine.core.model_drafts import DRAFT
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.checkpoints.shapes import expected_shapes
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.source import resolve_source
from paternoster_engine.runner.kv_pool import kv_block_bytes

WORDS = [f"{first}{second}" for first in "abcdefgh" for second in "abcdefgh"]
SIZES: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": len(WORDS),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "eos_token_id": 0,
}
MEMORY = 2_000_000


def save(folder: Path, words: list[str] = WORDS, **changes: Any) -> str:
    """Write a model of random weights; its address."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**SIZES, **changes}))
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[-1])
    backend = tokenizers.Tokenizer(model)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.save(str(folder / "tokenizer.json"))
    save_file({}, folder / "model.safetensors")
    config = open_checkpoint(resolve_source(folder.as_uri())).config
    weights = random_weights(config, torch.float32, torch.Generator().manual_seed(3), spread=3.0)
    save_file({name: weights(name) for name, _ in expected_shapes(config)}, folder / "model.safetensors")
    return folder.as_uri()


def args(model: str, draft: str, **settings: Any) -> EngineArgs:
    sizes = {"kv_cache_memory": MEMORY, "max_num_seqs": 2, "max_model_len": 128, "device": "cpu", "dtype": "float32"}
    return EngineArgs(**{**sizes, **settings}, model=model, speculative="draft", draft_model=draft)


def test_one_that_fits_drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # By the clock a model of this size costs what it costs to call it.
    monkeypatch.setattr(build_draft, "relative_cost", lambda drafter, runner: 0.05)
    model, small = save(tmp_path / "model"), save(tmp_path / "small", num_hidden_layers=1, hidden_size=32)
    outputs = []
    for draft in (model, small):
        engine, _, config = build_engine(args(model, draft))
        beside = open_checkpoint(resolve_source(draft)).config
        of_both = kv_block_bytes(config, 32, torch.float32)
        of_both += kv_block_bytes(beside, 32, build_draft.resolve_dtype("auto", torch.device("cpu")))
        assert engine.scheduler.config.num_blocks == MEMORY // of_both
        params = SamplingParams(max_tokens=40, temperature=0.8, ignore_eos=True)
        request = Request(RequestSpec("r", [1, 2, 3], params, eos_token_ids=(0,), seed=4))
        engine.scheduler.add(request)
        while engine.scheduler.has_work:
            engine.step()
        assert engine.scheduler.counters.proposed_tokens[DRAFT] > 0
        outputs.append(request.output)
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"vocab_size": 63, "words": WORDS[:63]},
            "with a vocabulary of 63 tokens: must be that of model, which has 64",
        ),
        ({"words": [*WORDS[:9], "xx", *WORDS[10:]]}, "to which token 9 is 'xx': must be 'bb', as to the model"),
        ({"words": WORDS[:60]}, "to which token 60 is None: must be 'he', as to the model"),
        ({"eos_token_id": 5}, r"whose texts end with tokens \(5,\): must be \(0,\), as the model's"),
        (
            {"max_position_embeddings": 100},
            "max_model_len is 128: must be at most 100, the context of the draft model draft",
        ),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
            "must be a model whose layers all see as many tokens",
        ),
    ],
    ids=str,
)
def test_one_that_does_not_fit_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    model, draft = save(tmp_path / "model"), save(tmp_path / "draft", **changes)
    with pytest.raises(ModelError, match=message):
        build_engine(args(model, draft))


def test_a_draft_model_must_generate(tmp_path: Path) -> None:
    model, draft = save(tmp_path / "model"), tmp_path / "draft"
    save(draft)
    (draft / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ModelError, match=f"draft_model is '{draft.as_uri()}': must be a model that generates text"):
        build_engine(args(model, draft.as_uri()))
    with pytest.raises(ModelError, match=r"no_such_package_here.*not installed"):
        build_engine(args(model, "package://no_such_package_here"))


def test_some_models_have_none(tmp_path: Path) -> None:
    model = save(tmp_path / "model")
    windowed = save(tmp_path / "windowed", model_type="mistral", sliding_window=16)
    with pytest.raises(ModelError, match="speculative is 'draft': windowed has attention windows"):
        build_engine(args(windowed, model))
    with pytest.raises(ModelError, match="speculative is 'draft': must be 'auto' or 'off' for vectors of texts"):
        build_engine(args(model, model, task="embed"))
    with pytest.raises(ModelError, match="max_adapter_memory is 1: must be 0 for vectors of texts"):
        build_engine(EngineArgs(model=model, task="embed", max_adapter_memory=1))
