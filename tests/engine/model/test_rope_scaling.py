"""Rotary embeddings that reach further: frequencies, and whole models, as transformers and llama.cpp have them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.families import tiny_families as tiny

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.block_table import BlockTable
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.config import LONGEST_CONTEXT, ModelConfig, Rope
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.errors import ModelError, UnsupportedModelError
from paternoster_engine.model.families.read import config_from_hf
from paternoster_engine.model.fields import Fields
from paternoster_engine.model.layers.rotary import rotary_table
from paternoster_engine.model.rope_scaling import Divided, LinearScaling, Llama3, RopeScaling, Yarn, from_hf
from paternoster_engine.model.source import resolve_source
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.step_input import host_step

CPU = torch.device("cpu")
LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False, "initializer_range": 0.15,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
}  # fmt: skip

factors = st.floats(1.0, 64.0)
originals = st.integers(16, 16_384)
numbers = {
    "linear": st.fixed_dictionaries({"factor": factors}),
    "llama3": st.fixed_dictionaries(
        {
            "factor": factors,
            "low_freq_factor": st.floats(0.5, 2.0),
            "high_freq_factor": st.floats(2.5, 8.0),
            "original_max_position_embeddings": originals,
        }
    ),
    "yarn": st.fixed_dictionaries(
        {"factor": factors, "original_max_position_embeddings": originals},
        optional={
            "beta_fast": st.floats(8.0, 64.0),
            "beta_slow": st.floats(0.5, 4.0),
            "attention_factor": st.floats(0.5, 2.0),
            "truncate": st.booleans(),
        },
    ),
}


def plain(head_dim: int, theta: float) -> torch.Tensor:
    return theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)


@pytest.mark.parametrize("kind", numbers)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), head_dim=st.sampled_from([16, 64, 128]), theta=st.sampled_from([1e4, 5e5, 1e6]))
def test_frequencies_are_those_of_transformers(kind: str, data: st.DataObject, head_dim: int, theta: float) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {"rope_type": kind, "rope_theta": theta, **data.draw(numbers[kind])}
    config = LlamaConfig(
        hidden_size=4 * head_dim, num_attention_heads=4, head_dim=head_dim, max_position_embeddings=65_536,
        rope_parameters=dict(rope),
    )  # fmt: skip
    theirs, amplitude = ROPE_INIT_FUNCTIONS[kind](config, CPU)
    scaling = from_hf(Fields(rope, "config.json"), 65_536)
    assert scaling is not None
    torch.testing.assert_close(scaling.scale_frequencies(plain(head_dim, theta), theta), theirs, rtol=1e-5, atol=0)
    assert scaling.amplitude == pytest.approx(amplitude)


@pytest.mark.parametrize("above", [1.0, 0.707])
def test_two_scales_of_attention_make_the_amplitude_of_yarn(above: float) -> None:
    rope = {"rope_type": "yarn", "factor": 40.0, "mscale": above, "mscale_all_dim": 1.0}
    scaling = from_hf(Fields(rope, "config.json"), 4096)
    assert scaling is not None
    assert scaling.amplitude == pytest.approx((0.1 * above * math.log(40) + 1) / (0.1 * math.log(40) + 1))


@pytest.mark.parametrize(("model_type", "kind"), [*(("llama", kind) for kind in KINDS), ("mistral", None)])
def test_logits_are_those_of_transformers(model_type: str, kind: str | None, tmp_path: Path) -> None:
    """200 tokens, far beyond the texts that the model was trained on, in two steps."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(3)
    shape = {**LLAMA, "model_type": model_type}
    rope = {"rope_theta": 10_000.0, **(KINDS[kind] if kind else {"rope_type": "default"})}
    extra = {"sliding_window": None} if model_type == "mistral" else {}
    config = AutoConfig.for_model(**shape, rope_parameters=rope, **extra)
    theirs = AutoModelForCausalLM.from_config(config).eval()
    theirs.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    checkpoint = open_checkpoint(resolve_source(tmp_path.as_uri()))
    assert (checkpoint.config.rope_scaling is None) == (kind is None)
    model = Decoder(checkpoint.config, checkpoint.get_tensor, torch.float32, CPU)
    pool = KVPoolShape.fit_memory(model.config, 8, torch.float32, 2_000_000)
    cache = allocate_kv_cache(pool, model.config, torch.float32, CPU)
    prompt = torch.randint(320, (200,)).tolist()
    request = Request(
        RequestSpec("r", prompt, SamplingParams(max_tokens=1)), block_table=BlockTable(list(range(1, 26)))
    )
    with torch.inference_mode():
        for begin, count in ((0, 130), (130, 70)):
            scheduled = [ScheduledRequest(request, begin, count, samples=begin > 0)]
            got = model.forward(host_step(scheduled).on_device(cache[0], model.plan_attention), cache)
        expected = theirs(torch.tensor([prompt])).logits[0, -1:]
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def write_gguf(path: Path, divisors: list[float] | None = None, **fields: Any) -> None:
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_vocab_size(320)
    writer.add_context_length(4096)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, value in fields.items():
        name = f"llama.rope.scaling.{key}"
        writer.add_string(name, value) if isinstance(value, str) else (
            writer.add_uint32(name, value) if isinstance(value, int) else writer.add_float32(name, value)
        )
    if divisors is not None:
        writer.add_tensor("rope_freqs.weight", torch.tensor(divisors).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_gguf(path: Path) -> ModelConfig:
    return open_checkpoint(resolve_source(path.as_uri())).config


def test_a_gguf_file_has_a_divisor_for_each_frequency(tmp_path: Path) -> None:
    """Divisors are those that llama.cpp's converter writes for Llama 3.1."""
    llama3 = Llama3(8.0, 1.0, 4.0, 8192)
    divisors = (plain(64, 5e5) / llama3.scale_frequencies(plain(64, 5e5), 5e5)).tolist()
    write_gguf(tmp_path / "model.gguf", divisors)
    scaling = read_gguf(tmp_path / "model.gguf").rope_scaling
    assert scaling == Divided(tuple(divisors))
    torch.testing.assert_close(
        scaling.scale_frequencies(plain(64, 5e5), 5e5), llama3.scale_frequencies(plain(64, 5e5), 5e5)
    )


@pytest.mark.parametrize(
    ("fields", "scaling"),
    [
        ({}, None),
        ({"type": "none"}, None),
        ({"type": "linear", "factor": 4.0}, LinearScaling(4.0)),
        (
            {"type": "yarn", "factor": 4.0, "original_context_length": 1024},
            Yarn(4.0, 1024, 32.0, 1.0, 0.1 * math.log(4) + 1),
        ),
    ],
)
def test_a_gguf_file_names_its_kind(fields: dict[str, Any], scaling: RopeScaling | None, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", **fields)
    assert read_gguf(tmp_path / "model.gguf").rope_scaling == scaling


@pytest.mark.parametrize(
    ("divisors", "fields", "message"),
    [
        ([1.0] * 31, {}, "the size of rope_freqs.weight is 31: must be 32, half of what is rotated"),
        ([1.0] * 31 + [0.0], {}, "rope_freqs.weight is .*: must be finite numbers above 0"),
        ([1.0] * 31 + [math.nan], {}, "rope_freqs.weight is .*: must be finite numbers above 0"),
        ([1.0] * 300, {}, r"rope_freqs.weight is F32 of shape \[300\]: must be at most 256 F32"),
        ([1.0] * 32, {"type": "linear", "factor": 2.0}, "type is 'linear': must be 'none' beside rope_freqs"),
        (None, {"type": "longrope", "factor": 2.0}, "scaling is 'longrope': must be one of none, linear, yarn"),
        (None, {"type": "yarn", "factor": 0.0}, "factor is 0.0: must be a finite number above 0"),
    ],
)
def test_a_gguf_file_that_contradicts_itself_is_refused(
    divisors: list[float] | None, fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "model.gguf", divisors, **fields)
    with pytest.raises(ModelError, match=message):
        read_gguf(tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_type": "longrope"}, "no field 'short_factor'"),
        ({"factor": None}, "no field 'factor'"),
        ({"factor": -1.0}, "factor is -1.0: must be a finite number above 0"),
        ({"high_freq_factor": 1.0}, "high_freq_factor is 1.0: must be above low_freq_factor, which is 1.0"),
        ({"original_max_position_embeddings": 0}, "original_max_position_embeddings is 0: must be a whole number"),
        ({"rope_type": "yarn", "factor": 1e9}, "factor is 1000000000.0: must be so that the context is at most"),
        ({"rope_type": "yarn", "truncate": 3}, "truncate is 3: must be true or false"),
    ],
)
def test_a_config_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        config_from_hf({**LLAMA, "rope_scaling": {**KINDS["llama3"], **change}}, "tiny")


def test_yarn_says_how_far_it_reaches() -> None:
    """Qwen's cards have a longer context switched on by this alone; others have the long one in both places."""
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 200}
    assert config_from_hf({**LLAMA, "rope_scaling": rope}, "tiny").context_length == 800
    long = {**LLAMA, "max_position_embeddings": 1000, "rope_scaling": rope}
    assert config_from_hf(long, "tiny").context_length == 1000


def test_a_config_of_llama_3_1_as_it_is_published() -> None:
    published = json.loads(
        '{"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, '
        '"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, '
        '"max_position_embeddings": 131072, "rope_theta": 500000.0, "tie_word_embeddings": false, '
        '"rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, '
        '"original_max_position_embeddings": 8192, "rope_type": "llama3"}}'
    )
    config = config_from_hf(published, "llama")
    assert config.rope_scaling == Llama3(8.0, 1.0, 4.0, 8192)
    assert config.context_length == 131_072 <= LONGEST_CONTEXT
    table = rotary_table(config.rope, config.head_dim, 16, CPU)
    assert table.shape == (16, 128)
    assert torch.equal(table[:, :20], rotary_table(Rope(500_000.0), 128, 16, CPU)[:, :20]), "what turns fast stays"


def test_short_divisors_of_a_gguf_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LongRoPE has two tensors, and the amplitude beside; the short ones are served."""
    own = {"original_max_position_embeddings": 256}
    monkeypatch.setitem(tiny.MODELS, "phi3, short", tiny.MODELS["phi3, long"] | own)
    theirs = tiny.make("phi3, short")
    rope = theirs.config.rope_parameters
    amplitude = math.sqrt(1 + math.log(tiny.CONTEXT / 256) / math.log(256))
    # save_gguf has no name for a rotary embedding that it does not know.
    theirs.config.rope_parameters = tiny.ROPE
    tiny.save_gguf(theirs, tmp_path / "plain.gguf", "phi3")
    theirs.config.rope_parameters = rope
    keys = {"rope.dimension_count": 12, "rope.scaling.original_context_length": 256}
    keys |= {"rope.scaling.attn_factor": amplitude}
    tensors = {f"rope_factors_{kind}.weight": torch.tensor(rope[f"{kind}_factor"]) for kind in ("short", "long")}
    path = tiny.add_to_gguf(tmp_path / "plain.gguf", {f"phi3.{key}": value for key, value in keys.items()}, tensors)
    checkpoint = open_checkpoint(resolve_source(path.as_uri()))
    assert checkpoint.config.context_length == 256
    engine = tiny.engine(Decoder(checkpoint.config, checkpoint.get_tensor, torch.float32, CPU), max_model_len=256)
    prompt = list(range(20, 150))
    request = Request(RequestSpec("r", prompt, SamplingParams(max_tokens=6, temperature=0.0)))
    engine.scheduler.add(request)
    while engine.scheduler.has_work:
        engine.step()
    with torch.inference_mode():
        expected = theirs.generate(torch.tensor([prompt]), max_new_tokens=6, do_sample=False, eos_token_id=None)
    assert request.output == expected[0, len(prompt) :].tolist()
    assert not [note for note in checkpoint.notes if "rope" in note]
