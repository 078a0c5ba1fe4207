"""What publishers recommend for requests that leave it out: generation_config.json, and its copy in GGUF files."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from pydantic import ValidationError
from tests.engine.model.repository.tiny_repository import write_repository
from transformers import GenerationConfig

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.sampling_defaults import (
    SamplingDefaults,
    defaults_of_generation_config,
    defaults_of_gguf,
)
from paternoster_engine.model.weights.gguf_file import read_gguf
from paternoster_engine.server.openai.requests import ChatCompletionRequest

QWEN3 = {
    "bos_token_id": 151643, "do_sample": True, "eos_token_id": [151645, 151643], "pad_token_id": 151643,
    "temperature": 0.6, "top_k": 20, "top_p": 0.95, "transformers_version": "4.51.0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {}),
        (QWEN3, {"temperature": 0.6, "top_k": 20, "top_p": 0.95}),
        ({"do_sample": False}, {"temperature": 0}),
        ({"do_sample": False, "temperature": 0.7, "top_p": 0.8}, {"temperature": 0, "top_p": 0.8}),
        ({"do_sample": None, "temperature": None, "top_k": None}, {}),
        ({"temperature": 0.0, "top_k": 1, "top_p": 0.001}, {"temperature": 0, "top_k": 1, "top_p": 0.001}),
        ({"repetition_penalty": 1.05, "min_p": 0.1}, {"repetition_penalty": 1.05, "min_p": 0.1}),
        ({"max_new_tokens": 2048, "top_k": 0}, {"max_tokens": 2048, "top_k": 0}),
        ({"temperature": 1, "top_p": 1}, {"temperature": 1.0, "top_p": 1.0}),
    ],
)
def test_fields_of_generation_config(values: dict[str, Any], expected: dict[str, Any]) -> None:
    made = defaults_of_generation_config(values)
    assert made.list_set_values() == expected
    assert not made.notes
    # A default is what a request could ask for.
    body = {"messages": [{"role": "user", "content": "a"}], **made.list_set_values()}
    assert ChatCompletionRequest.model_validate(body).model_fields_set == set(body)


def test_what_transformers_writes_is_read(tmp_path: Path) -> None:
    defaults = {"temperature": 0.25, "top_k": 7, "top_p": 0.5, "min_p": 0.125, "repetition_penalty": 1.25}
    GenerationConfig(**defaults, do_sample=True, max_new_tokens=9).save_pretrained(tmp_path)
    folder = write_repository(
        tmp_path / "m", {"generation_config.json": (tmp_path / "generation_config.json").read_text()}
    )
    _, _, config = build_engine(EngineArgs(model=folder.as_uri(), kv_cache_memory=2**22, threads=1))
    assert config.sampling_defaults.list_set_values() == {**defaults, "max_tokens": 9}


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"temperature": -0.1}, "temperature is -0.1: must be a number from 0 to 2"),
        ({"temperature": 2.5}, "temperature is 2.5"),
        ({"temperature": "0.6"}, "temperature is '0.6'"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"top_k": 0.5}, "top_k is 0.5: must be a whole number from -1"),
        ({"min_p": True}, "min_p is True"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"do_sample": "no"}, "do_sample is 'no': must be true or false"),
    ],
)
def test_values_that_no_request_may_have(values: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as refused:
        defaults_of_generation_config(values)
    assert f"generation_config.json: {field}" in str(refused.value)
    body = {"messages": [{"role": "user", "content": "a"}], **values}
    if not values.keys() & {"do_sample", "max_new_tokens"}:
        with pytest.raises(ValidationError):
            ChatCompletionRequest.model_validate(body)


def test_settings_without_effect_are_named() -> None:
    values = {"no_repeat_ngram_size": 3, "num_beams": 1, "typical_p": 1.0, "min_length": 0, "stop_strings": ["x"]}
    (note,) = defaults_of_generation_config(values).notes
    assert note.startswith("generation_config.json: no_repeat_ngram_size 3, stop_strings ['x'] has no effect here")


def _gguf(path: Path, values: dict[str, float | int]) -> dict[str, Any]:
    writer = GGUFWriter(path, "llama")
    for name, value in values.items():
        key = f"general.sampling.{name}"
        writer.add_int32(key, value) if isinstance(value, int) else writer.add_float32(key, value)
    writer.add_tensor("x", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return dict(read_gguf(path).fields)


def test_fields_of_a_gguf_file(tmp_path: Path) -> None:
    defaults = {"temp": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "penalty_repeat": 1.05}
    made = defaults_of_gguf(_gguf(tmp_path / "m.gguf", {**defaults, "penalty_last_n": 64, "xtc_probability": 0.0}))
    assert made.list_set_values() == {
        "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.05
    }  # fmt: skip
    assert made.notes == [
        "the GGUF file: general.sampling.penalty_last_n 64 has no effect here: requests may ask for what they need"
    ]
    assert defaults_of_gguf(_gguf(tmp_path / "n.gguf", {"temp": -1.0})).list_set_values() == {"temperature": 0.0}
    assert defaults_of_gguf(_gguf(tmp_path / "o.gguf", {})) == SamplingDefaults()
    with pytest.raises(ModelError, match=r"the GGUF file: general.sampling.temp is 5.0: must be a number from 0 to 2"):
        defaults_of_gguf(_gguf(tmp_path / "p.gguf", {"temp": 5.0}))


def test_the_setting_leaves_them_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {"generation_config.json": {"temperature": 0.6, "eos_token_id": [4, 5], "num_beams": 4}}
    args = EngineArgs(model=write_repository(tmp_path, files).as_uri(), kv_cache_memory=2**22, threads=1)
    with caplog.at_level(logging.INFO):
        _, tokenizer, config = build_engine(args)
    assert config.sampling_defaults == SamplingDefaults(temperature=0.6)
    assert "are the publisher's temperature 0.6 (generation_config 'none' disables them)" in caplog.text
    assert "generation_config.json: num_beams 4 has no effect here" in caplog.text
    caplog.clear()
    _, plain, without = build_engine(args.replace(generation_config="none"))
    assert without.sampling_defaults == SamplingDefaults()
    assert "publisher" not in caplog.text
    # Which tokens end an answer is no recommendation.
    assert plain.eos_token_ids == tokenizer.eos_token_ids
    assert plain.eos_token_ids[:2] == (4, 5)


def test_a_value_out_of_bounds_names_the_way_out(tmp_path: Path) -> None:
    folder = write_repository(tmp_path, {"generation_config.json": {"temperature": 3}})
    args = EngineArgs(model=folder.as_uri(), kv_cache_memory=2**22, threads=1)
    with pytest.raises(ModelError, match=r"temperature is 3: must be .*; generation_config 'none' leaves it out"):
        build_engine(args)
    build_engine(args.replace(generation_config="none"))
