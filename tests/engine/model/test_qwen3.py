"""Qwen3 from both file formats: the logits and the tokens that transformers has for the same weights."""

import unicodedata
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGUFWriter, get_tensor_name_map
from gguf.constants import MODEL_ARCH
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.block_table import BlockTable
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint, open_checkpoint
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.source import resolve_source
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.runner.step_input import host_step
from paternoster_engine.sampling.sampler import Sampler

CPU = torch.device("cpu")
VOCAB, LAYERS, BLOCK_SIZE = 320, 2, 4
PROMPTS = [[5, 9, 300, 7, 7, 41], [11], list(range(20, 39))]


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Random everywhere: norms of ones would hide that they are read. Heads are wider than their share of the input."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(6)
    config = Qwen3Config(
        vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=128, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6}, initializer_range=0.15,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).eval()
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(weight, 1.0, 0.4)
    return model


def write_gguf(path: Path, model: Any) -> None:
    config, arch = model.config, "qwen3"
    writer = GGUFWriter(path, arch)
    for add, value in (
        (writer.add_block_count, LAYERS),
        (writer.add_vocab_size, VOCAB),
        (writer.add_context_length, config.max_position_embeddings),
        (writer.add_embedding_length, config.hidden_size),
        (writer.add_feed_forward_length, config.intermediate_size),
        (writer.add_head_count, config.num_attention_heads),
        (writer.add_head_count_kv, config.num_key_value_heads),
        (writer.add_key_length, config.head_dim),
        (writer.add_rope_freq_base, 1e6),
        (writer.add_layer_norm_rms_eps, config.rms_norm_eps),
    ):
        add(value)
    names = get_tensor_name_map(MODEL_ARCH.QWEN3, LAYERS)
    for name, tensor in model.state_dict().items():
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module", params=["safetensors", "gguf"])
def checkpoint(request: pytest.FixtureRequest, theirs: Any, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("qwen3")
    if request.param == "gguf":
        path = folder / "model.gguf"
        write_gguf(path, theirs)
    else:
        path = folder
        theirs.save_pretrained(path)
        (path / "tokenizer.json").write_text("{}")
    return open_checkpoint(resolve_source(path.as_uri()))


def build(checkpoint: Checkpoint, *, invariant: bool = False) -> Decoder:
    return Decoder(checkpoint.config, checkpoint.get_tensor, torch.float32, CPU, invariant=invariant)


@pytest.mark.parametrize("invariant", [False, True])
def test_logits_are_those_of_transformers(checkpoint: Checkpoint, theirs: Any, invariant: bool) -> None:
    """Three sequences in one step: whole, of one token, and the second half of one whose first half went before."""
    model = build(checkpoint, invariant=invariant)
    shape = KVPoolShape.fit_memory(model.config, BLOCK_SIZE, torch.float32, 1_000_000)
    cache = allocate_kv_cache(shape, model.config, torch.float32, CPU)
    tables = [[9, 2], [4], [3, 1, 8, 7, 5]]
    requests = [
        Request(RequestSpec(f"r{i}", prompt, SamplingParams(max_tokens=1)), block_table=BlockTable(table))
        for i, (prompt, table) in enumerate(zip(PROMPTS, tables, strict=True))
    ]
    first = [ScheduledRequest(requests[2], 0, 9, samples=False)]
    rest = [ScheduledRequest(requests[2], 9, 10, samples=True)]
    rest += [ScheduledRequest(request, 0, request.num_prompt, samples=True) for request in requests[:2]]
    with torch.inference_mode():
        for scheduled in (first, rest):
            got = model.forward(host_step(scheduled).on_device(cache[0], model.plan_attention), cache)
        expected = [theirs(torch.tensor([request.prompt])).logits[0, -1] for request in (requests[2], *requests[:2])]
    torch.testing.assert_close(got, torch.stack(expected), rtol=1e-4, atol=1e-4)


def test_tokens_are_those_of_transformers(checkpoint: Checkpoint, theirs: Any) -> None:
    model = build(checkpoint)
    config = SchedulerConfig(max_num_seqs=3, max_batched_tokens=8, max_model_len=64, block_size=4, num_blocks=60)
    shape = KVPoolShape(config.num_blocks, BLOCK_SIZE, 0)
    runner = ModelRunner(model, allocate_kv_cache(shape, model.config, torch.float32, CPU), Sampler(VOCAB, CPU))
    engine = Engine(Scheduler(config), runner)
    params = SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True)
    requests = [Request(RequestSpec(f"r{i}", list(prompt), params)) for i, prompt in enumerate(PROMPTS)]
    for request in requests:
        engine.scheduler.add(request)
    while engine.scheduler.has_work:
        engine.step()
    for request in requests:
        ids = torch.tensor([request.prompt])
        generated = theirs.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False, eos_token_id=None,
            pad_token_id=0,
        )  # fmt: skip
        assert request.output == generated[0, len(request.prompt) :].tolist()
    assert len({token for request in requests for token in request.output}) > 10


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(["I'll", " don'T", "  ", "\n", "\r\n ", "42", "Å", "e\u0301", "日本", "!?", "_", "x"])))
def test_text_of_a_gguf_file_is_cut_as_transformers_cuts_it(parts: list[str]) -> None:
    """Vocabulary of bytes and of pairs that only a cut in the same place keeps apart."""
    from transformers import Qwen2Tokenizer

    tokens = list(ByteLevel.alphabet())
    merges = [f"{left} {right}" for left in "Ġ4'ox_lÃ" for right in "Ġ24'lcx_ċ¥"]
    tokens += [merge.replace(" ", "") for merge in merges]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": [1] * len(tokens),
    }
    vocab = {token: i for i, token in enumerate(tokens)}
    theirs = Qwen2Tokenizer(vocab=vocab, merges=[tuple(merge.split(" ")) for merge in merges])
    text = "".join(parts)
    ours = Tokenizer.from_gguf(metadata)
    assert ours.encode(text) == theirs.encode(text)
    assert ours.decode(ours.encode(text)) == unicodedata.normalize("NFC", text)
