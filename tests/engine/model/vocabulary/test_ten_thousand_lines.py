"""Ten thousand lines of mixed scripts, code and emoji: ids as transformers has them, text back, and text by token."""

import json
from pathlib import Path

import pytest
from tests.engine.model.vocabulary.json_vocabularies import (
    JSON_KINDS,
    LOSES_A_FIRST_SPACE,
    LOSES_TEXT,
    SPACE_BEHIND_TOKENS,
    json_tokenizer,
)
from tests.engine.model.vocabulary.vocabularies import CONTROL, OWN, check_lines, corpus, lines_of, pair_of
from transformers import PreTrainedTokenizerFast

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.model.vocabulary.byte_level import CUTS
from paternoster_engine.model.vocabulary.from_json import TokenizerFiles

LINES = 10_000
EACH_CUT = list({id(cut): name for name, cut in reversed(CUTS.items())}.values())
"""A name of each way to cut text."""


@pytest.mark.parametrize("kind", [*EACH_CUT, "llama", "gemma"])
def test_from_the_fields_of_a_gguf_file(kind: str, tmp_path: Path) -> None:
    ours, theirs = pair_of(kind, tmp_path)
    lines = lines_of(kind, LINES)
    expected = [encoding.ids for encoding in theirs.encode_batch_fast(lines, add_special_tokens=False)]
    check_lines(ours, expected, lines, lines)


@pytest.mark.parametrize("kind", JSON_KINDS)
def test_from_a_tokenizer_json(kind: str, tmp_path: Path) -> None:
    """Written by transformers, and read by it; some lines with control and own tokens in them."""
    named = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=json_tokenizer(kind), **named).save_pretrained(tmp_path)
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    ours = Tokenizer.from_json(TokenizerFiles((tmp_path / "tokenizer.json").read_text(), config))
    lines = lines_of("qwen2", LINES) if kind == "qwen2" else list(corpus(LINES))
    marks = [*CONTROL[3:], *OWN]
    lines = [f"{line}{marks[i % 4]}x" if i % 10 == 0 else line for i, line in enumerate(lines)]
    expected = theirs(lines, add_special_tokens=False)["input_ids"]
    texts = theirs.batch_decode(expected, clean_up_tokenization_spaces=False)
    check_lines(ours, expected, lines, texts)
    if kind in LOSES_TEXT:
        return
    if kind in LOSES_A_FIRST_SPACE:
        lines = [line.removeprefix(" ") for line in lines]
    if kind in SPACE_BEHIND_TOKENS:
        lines = [f"{line[:-1]} x" if line.endswith(tuple(f"{space}x" for space in marks)) else line for line in lines]
    assert texts == lines
