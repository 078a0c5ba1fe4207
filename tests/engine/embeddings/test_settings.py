"""What an encoder's files and an engine's settings say together, and what is refused with its reason."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engine.embeddings import tiny_encoders as tiny

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.model.errors import ModelError


@pytest.fixture(scope="module")
def theirs() -> Any:
    return tiny.make("bert")


@pytest.fixture
def folder(theirs: Any, tmp_path: Path) -> Path:
    return tiny.save(theirs, tmp_path)


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_what_is_not_said_is_a_normalised_mean(folder: Path) -> None:
    engine, _, model = build_engine(EngineArgs(model=folder.as_uri(), threads=1))
    assert (model.pooling.mode, model.pooling.normalized, model.pooling.shortens) == ("mean", True, False)
    assert engine.scheduler.config.max_model_len == 48
    assert engine.scheduler.config.whole_prompts


def test_settings_come_before_files(folder: Path) -> None:
    tiny.write_modules(folder, "pooling_mode_mean_tokens", sentence_bert_config={"max_seq_length": 20})
    engine, _, model = build_engine(EngineArgs(model=folder.as_uri(), threads=1))
    assert (engine.scheduler.config.max_model_len, model.pooling.mode) == (20, "mean")
    engine_args = EngineArgs(model=folder.as_uri(), threads=1, pooling="cls", matryoshka=True, max_model_len=40)
    engine, _, model = build_engine(engine_args)
    assert (engine.scheduler.config.max_model_len, model.pooling.mode, model.pooling.shortens) == (40, "cls", True)


def test_a_step_holds_the_longest_text(folder: Path) -> None:
    engine, _, _ = build_engine(EngineArgs(model=folder.as_uri(), threads=1, max_num_seqs=8, max_batched_tokens=48))
    assert engine.scheduler.config.max_batched_tokens == 48
    with pytest.raises(ValueError, match="max_batched_tokens is 47: must be at least 48, the longest prompt"):
        build_engine(EngineArgs(model=folder.as_uri(), max_num_seqs=8, max_batched_tokens=47))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"task": "generate"}, "this model embeds; it does not generate"),
        ({"quantization": "int8"}, "quantization is 'int8': must be 'auto' or 'none' for a model that embeds"),
        ({"chat_template": "{{ messages }}"}, "chat_template is .* for a model that embeds"),
        ({"max_model_len": 49}, "max_model_len is 49: must be at most 48"),
    ],
)
def test_settings_of_other_models(folder: Path, args: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build_engine(EngineArgs(model=folder.as_uri(), **args))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key': must be 'absolute'"),
        ({"hidden_act": "swish"}, "hidden_act is 'swish': must be one of gelu"),
        ({"num_attention_heads": 2}, "num_attention_heads is 2: must be a divisor of 33"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000: must be a whole number"),
        ({"hidden_size": 66}, r"has the shape \[60, 33\]: must be \[60, 66\]"),
        ({"num_hidden_layers": 4}, "has no tensor 'encoder.layer.3"),
        ({"architectures": ["BertForSequenceClassification"]}, "a classifier with 2 labels"),
        ({"vocab_size": 10}, r"must be \[10, 33\]"),
    ],
)
def test_configs_that_are_no_encoder_of_ours(folder: Path, fields: dict[str, Any], message: str) -> None:
    change(folder / "config.json", **fields)
    with pytest.raises(ModelError, match=message):
        build_engine(EngineArgs(model=folder.as_uri()))


def test_steps_between_text_and_vector_that_are_none_of_ours(folder: Path) -> None:
    tiny.write_modules(folder, "pooling_mode_max_tokens")
    with pytest.raises(ModelError, match=r"the pooling is .*max_tokens.*: must be one of pooling_mode_mean_tokens"):
        build_engine(EngineArgs(model=folder.as_uri()))
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": kind} for kind in ("Transformer", "Dense")]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match=r"Dense.*must be Transformer, Pooling and maybe Normalize"):
        build_engine(EngineArgs(model=folder.as_uri()))
    (folder / "modules.json").write_text("{}")
    with pytest.raises(ModelError, match="must be a list of JSON objects"):
        build_engine(EngineArgs(model=folder.as_uri()))


@pytest.mark.parametrize("path", ["../secrets", "a/b", "", "."])
def test_a_pooling_outside_of_the_models_folder(folder: Path, path: str) -> None:
    tiny.write_modules(folder, "pooling_mode_mean_tokens")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = path
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match=r"path is .*: must be the name of a folder"):
        build_engine(EngineArgs(model=folder.as_uri()))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"prompts": {"query": 5}}, "prompts.query is 5: must be a text"),
        ({"prompts": {}, "default_prompt_name": "query"}, "default_prompt_name is 'query': must be one of no prompts"),
    ],
)
def test_prompts_that_are_none(folder: Path, files: dict[str, Any], message: str) -> None:
    tiny.write_modules(folder, "pooling_mode_mean_tokens", config_sentence_transformers=files)
    with pytest.raises(ModelError, match=message):
        build_engine(EngineArgs(model=folder.as_uri()))


def test_a_score_that_is_the_number_itself(tmp_path: Path) -> None:
    folder = tiny.save(tiny.make("bert", head=True), tmp_path)
    change(folder / "config.json", sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"})
    assert build_engine(EngineArgs(model=folder.as_uri(), threads=1))[2].score == "none"
    change(folder / "config.json", sentence_transformers={"activation_fn": "torch.nn.modules.activation.Tanh"})
    with pytest.raises(ModelError, match=r"activation_fn is .*Tanh': must be torch's Identity or Sigmoid"):
        build_engine(EngineArgs(model=folder.as_uri()))
    with pytest.raises(ModelError, match="must not be said of a model that scores pairs"):
        change(folder / "config.json", sentence_transformers={})
        build_engine(EngineArgs(model=folder.as_uri(), pooling="mean"))
