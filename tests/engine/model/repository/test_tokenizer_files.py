"""What a folder's tokenizer files say of each other, as transformers, vLLM and llama.cpp take it."""

from pathlib import Path
from typing import Any

import pytest
from tests.engine.model.repository.tiny_repository import (
    CONFIG,
    END,
    PAD,
    START,
    VOCAB,
    change_config,
    tokenizer_json,
    write_repository,
)
from transformers import AutoTokenizer

from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.source import resolve_source
from paternoster_engine.model.tokenizer import Tokenizer

IMAGE = "<image_soft_token>"
NEW = {"content": "<|new|>", "special": True}
DECODER = {"added_tokens_decoder": {str(VOCAB): NEW}}
TEXTS = ("a<|new|>b", f"x{IMAGE}", "<|start|>hi<|end|>", "<|pad|>", "é<|new|><|new|>")


def tokenizer_of(folder: Path) -> Tokenizer:
    return open_checkpoint(resolve_source(folder.as_uri())).build_tokenizer()


def test_an_added_token_without_a_row_is_plain_text(tmp_path: Path) -> None:
    """gemma-3-1b-it and -270m-it: 262144 rows, and the token is 262144 (huggingface/transformers#37011)."""
    config = {**CONFIG, "added_tokens_decoder": {str(VOCAB): {"content": IMAGE, "special": True}}}
    files = {"tokenizer.json": tokenizer_json((VOCAB, IMAGE)), "tokenizer_config.json": config}
    tokenizer = tokenizer_of(write_repository(tmp_path, files))
    assert tokenizer.largest_id == VOCAB - 1
    assert tokenizer.vocab_size == VOCAB
    assert tokenizer.encode(f"x{IMAGE}") == tokenizer.encode("x") + [tokenizer.encode(c)[0] for c in IMAGE]
    assert tokenizer.decode(tokenizer.encode(f"x{IMAGE}")) == f"x{IMAGE}"
    assert tokenizer.special_token_id(IMAGE) is None
    assert tokenizer.encode("<|end|>") == [END]
    (note,) = tokenizer.notes
    assert f"'{IMAGE}' ({VOCAB})" in note
    assert f"has {VOCAB} embeddings" in note


def test_the_same_where_the_vocabulary_has_it_too(tmp_path: Path) -> None:
    document = tokenizer_json((VOCAB, IMAGE))
    document["model"]["vocab"][IMAGE] = VOCAB
    tokenizer = tokenizer_of(write_repository(tmp_path, {"tokenizer.json": document}))
    assert tokenizer.largest_id == VOCAB - 1
    assert tokenizer.decode(tokenizer.encode(IMAGE)) == IMAGE


def test_a_token_of_text_without_a_row_is_of_another_tokenizer(tmp_path: Path) -> None:
    document = tokenizer_json()
    document["model"]["vocab"]["ab"] = VOCAB
    assert tokenizer_of(write_repository(tmp_path, {"tokenizer.json": document})).largest_id == VOCAB


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"tokenizer_config.json": {**CONFIG, **DECODER}},
        {"added_tokens.json": {"<|new|>": VOCAB}},
        {"tokenizer_config.json": {**CONFIG, "added_tokens_decoder": {}}, "added_tokens.json": {"<|new|>": VOCAB}},
        {"special_tokens_map.json": {"eos_token": "<|pad|>", "bos_token": {"content": "<|start|>"}}},
        {"tokenizer_config.json": {**CONFIG, **DECODER}, "special_tokens_map.json": {"eos_token": "<|pad|>"}},
        {"tokenizer_config.json": {**CONFIG, "added_tokens_decoder": {"1": {"content": '"', "special": True}}}},
        {"tokenizer_config.json": {**CONFIG, "add_bos_token": True, "add_eos_token": True, "bos_token": "<|start|>"}},
        {"chat_template.jinja": "J", "tokenizer_config.json": {**CONFIG, "chat_template": "C"}},
        {
            "tokenizer_config.json": {
                **CONFIG,
                "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}],
            }
        },
        {"chat_template.jinja": "J", "additional_chat_templates/tool_use.jinja": "T"},
        {"tokenizer_config.json": {**CONFIG, "model_max_length": 4, "truncation_side": "left"}},
    ],
)
def test_tokens_names_and_templates_are_those_of_transformers(files: dict[str, Any], tmp_path: Path) -> None:
    folder = write_repository(tmp_path, files, vocab_size=VOCAB + 5)
    ours, theirs = tokenizer_of(folder), AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        ids = theirs(text).input_ids
        assert ours.encode(text, add_special_tokens=True) == ids
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        assert ours.special_names.get(name) == getattr(theirs, name)
    template = theirs.chat_template
    named = template if isinstance(template, dict) else {"default": template}
    assert (ours.chat_template, ours.tool_use_template) == (named["default"], named.get("tool_use"))
    assert theirs.eos_token_id in ours.eos_token_ids


def test_a_processors_template_is_used_where_there_is_no_other(tmp_path: Path) -> None:
    """chat_template.json is of transformers' processors, and vLLM reads it."""
    plain = {**CONFIG, "chat_template": None}
    files = {"tokenizer_config.json": plain, "chat_template.json": {"chat_template": "P"}}
    assert tokenizer_of(write_repository(tmp_path, files)).chat_template == "P"
    (tmp_path / "chat_template.jinja").write_text("J")
    assert tokenizer_of(tmp_path).chat_template == "J"


@pytest.mark.parametrize(
    ("generation", "config", "own", "ends"),
    [
        (None, END, "<|end|>", (END,)),
        (None, None, "<|end|>", (END,)),
        ([START, PAD], END, "<|end|>", (START, PAD, END)),
        ([START], PAD, None, (START,)),
        (None, [START, PAD], "<|pad|>", (START, PAD)),
        ([START, 10**6], None, "<|end|>", (START, END)),
        (None, None, None, ()),
    ],
)
def test_answers_end_as_vllm_ends_them(generation: Any, config: Any, own: Any, ends: Any, tmp_path: Path) -> None:
    """With the ids of generation_config.json, or of config.json, and with the tokenizer's own eos_token."""
    files: dict[str, Any] = {"tokenizer_config.json": {**CONFIG, "eos_token": own}}
    if generation is not None:
        files["generation_config.json"] = {"eos_token_id": generation}
    folder = write_repository(tmp_path, files)
    change_config(folder, eos_token_id=config)
    tokenizer = tokenizer_of(folder)
    assert tokenizer.eos_token_ids == ends
    assert bool(tokenizer.notes) == (10**6 in (generation or []))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"tokenizer_config.json": {**CONFIG, "added_tokens_decoder": {"262": NEW}}},
            "tokenizer_config.json: added_tokens_decoder has '262', the token '<|new|>' with the id 262: must be in "
            "tokenizer.json, or have the id 259",
        ),
        ({"added_tokens.json": {"<|new|>": 3}}, "added_tokens.json has '<|new|>', the token '<|new|>' with the id 3"),
        ({"added_tokens.json": {"<|new|>": "x"}}, "added_tokens.json: '<|new|>' is 'x': must be a token's id"),
        (
            {"tokenizer_config.json": {**CONFIG, "added_tokens_decoder": {"x": NEW}}},
            "added_tokens_decoder has the name 'x': must be a token's id",
        ),
        (
            {"tokenizer_config.json": {**CONFIG, "eos_token": None}, "generation_config.json": {"eos_token_id": 999}},
            "eos_token_id is [999]: must have one below 264, the vocabulary",
        ),
        ({"generation_config.json": {"eos_token_id": "x"}}, "eos_token_id is 'x': must be a token's id, or a list"),
    ],
)
def test_files_that_contradict_each_other_are_refused(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = write_repository(tmp_path, files, vocab_size=VOCAB + 5)
    with pytest.raises(ModelError) as refused:
        tokenizer_of(folder)
    assert message in str(refused.value)


def test_a_tokenizer_config_of_thousands_of_tokens_is_read(tmp_path: Path) -> None:
    """That of Gemma 3 has 1.2 MB."""
    config = {**CONFIG, "extra": "x" * 2_000_000}
    assert tokenizer_of(write_repository(tmp_path, {"tokenizer_config.json": config})).largest_id == VOCAB - 1


def test_templates_that_are_not_used_are_told(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]
    files = {
        "tokenizer_config.json": {**CONFIG, "chat_template": named},
        "additional_chat_templates/tool_use.jinja": "T",
    }
    tokenizer = tokenizer_of(write_repository(tmp_path, files))
    assert (tokenizer.chat_template, tokenizer.tool_use_template) == ("D", "T")
    assert tokenizer.notes == ["chat templates that are not used: 'rag'"]
