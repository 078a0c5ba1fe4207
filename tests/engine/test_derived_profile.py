"""Steps on GPUs without measurements: against profiles that were worked out by hand, and what must hold of any."""

from dataclasses import asdict, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.core.step_work import StepWork
from paternoster_engine.fit.gpus import GPUS
from paternoster_engine.fit.memory import count_parameters, find_fits, token_bytes
from paternoster_engine.fit.profile import derived_profile
from paternoster_engine.fit.step_cost import KV_SHARE, active_parameters, step_cost
from paternoster_engine.model.config import Experts, Layer, ModelConfig, Rope
from paternoster_engine.runner.kv_pool import kv_block_bytes
from paternoster_simulator.profile import load_profile, parse_profile

BF16 = torch.bfloat16
LLAMA_8B = ModelConfig(
    architecture="llama", name="Llama-3.1-8B", vocab_size=128_256, hidden_size=4096, intermediate_size=14_336,
    num_layers=32, num_heads=32, num_kv_heads=8, head_dim=128, context_length=131_072, rope_theta=5e5,
    rms_norm_eps=1e-5, tied_embeddings=False,
)  # fmt: skip
LLAMA_70B = replace(LLAMA_8B, hidden_size=8192, intermediate_size=28_672, num_layers=80, num_heads=64)
PLAIN = Layer(Rope(1e4))


@pytest.mark.parametrize(
    ("name", "config", "gpu", "count"),
    [
        ("llama-3-8b-h100", LLAMA_8B, "H100", 1),
        ("llama-3-8b-h200", LLAMA_8B, "H200", 1),
        ("llama-3-70b-h100x4", LLAMA_70B, "H100", 4),
        ("llama-3-70b-h200x2", LLAMA_70B, "H200", 2),
    ],
)
def test_the_profiles_of_the_package_follow(name: str, config: ModelConfig, gpu: str, count: int) -> None:
    """Theirs have the sums of ranks as a smaller share of the peak, and none with a decode; the rest is the same."""
    by_hand, derived = load_profile(name).step, step_cost(config, GPUS[gpu], count, BF16)
    assert derived.fixed_seconds == pytest.approx(by_hand.fixed_seconds, rel=0.01)
    assert derived.per_kv_token_seconds == pytest.approx(by_hand.per_kv_token_seconds, rel=0.01)
    assert derived.per_prefill_pair_seconds == pytest.approx(by_hand.per_prefill_pair_seconds, rel=0.01)
    assert derived.per_prefill_token_seconds == pytest.approx(by_hand.per_prefill_token_seconds, rel=0.06)
    assert by_hand.per_decode_sequence_seconds * 0.99 < derived.per_decode_sequence_seconds
    assert derived.per_decode_sequence_seconds < by_hand.per_decode_sequence_seconds * 1.3


def test_a_profile_is_read_as_it_was_written() -> None:
    fit = next(fit for fit in find_fits(LLAMA_8B, BF16, 0.9) if (fit.gpu, fit.count) == ("L40S", 1))
    written = derived_profile(LLAMA_8B, fit, BF16, usd_per_gpu_hour=1.5, engine="VLLM")
    read = parse_profile(written.to_yaml(["a comment"]), where="test")
    assert read.kv_blocks == fit.memory // kv_block_bytes(LLAMA_8B, read.kv_block_size, BF16)
    assert read.step.model_dump() == pytest.approx(asdict(written.step), rel=1e-4)
    assert (read.gpus_per_replica, read.usd_per_gpu_hour, read.engine) == (1, 1.5, "VLLM")
    assert read.startup.load_seconds == pytest.approx(10 + 16.06, rel=0.01)


def test_experts_are_all_read_and_few_of_them_multiplied() -> None:
    experts = Experts(count=16, active=2, intermediate_size=1024, normalized=True)
    mixed = replace(LLAMA_8B, layer_kinds=(replace(PLAIN, experts=experts),) * 32)
    idle = 32 * 14 * 3 * 4096 * 1024
    assert active_parameters(mixed) == count_parameters(mixed) - idle
    more = replace(LLAMA_8B, layer_kinds=(replace(PLAIN, experts=replace(experts, count=64)),) * 32)
    one, other = (step_cost(config, GPUS["H100"], 1, BF16) for config in (mixed, more))
    assert other.fixed_seconds > 2 * one.fixed_seconds
    assert other.per_prefill_token_seconds == pytest.approx(one.per_prefill_token_seconds, rel=0.01)


def test_a_window_costs_as_much_as_a_context_of_its_length() -> None:
    """Where all layers have a window, and a sequence just fills it."""
    window = 1024
    sliding = replace(LLAMA_8B, layer_kinds=(replace(PLAIN, window=window),) * 32)
    ours, plain = (step_cost(config, GPUS["H100"], 1, BF16) for config in (sliding, LLAMA_8B))
    assert ours.per_kv_token_seconds == ours.per_prefill_pair_seconds == 0
    read = token_bytes(LLAMA_8B, BF16) * window / (KV_SHARE * GPUS["H100"].bytes_per_second)
    assert ours.per_decode_sequence_seconds == pytest.approx(plain.per_decode_sequence_seconds + read)
    decode = StepWork(decode_sequences=1, kv_tokens=window)
    assert ours.predict_seconds(decode) == pytest.approx(plain.predict_seconds(decode))
    prefill = StepWork(prefill_tokens=8, prefill_pairs=8 * window)
    assert ours.predict_seconds(prefill) == pytest.approx(plain.predict_seconds(prefill))


@given(st.sampled_from(sorted(GPUS)), st.sampled_from([1, 2, 4]), st.booleans())
def test_more_gpus_and_faster_ones_are_never_slower_at_what_they_divide(gpu: str, count: int, windowed: bool) -> None:
    kinds = (PLAIN, replace(PLAIN, window=128)) * 16
    config = replace(LLAMA_8B, layer_kinds=kinds) if windowed else LLAMA_8B
    here, doubled = (step_cost(config, GPUS[gpu], number, BF16) for number in (count, 2 * count))
    assert doubled.per_kv_token_seconds == pytest.approx(here.per_kv_token_seconds / 2)
    assert doubled.per_prefill_pair_seconds == pytest.approx(here.per_prefill_pair_seconds / 2)
    faster = replace(GPUS[gpu], bytes_per_second=2 * GPUS[gpu].bytes_per_second)
    quick = step_cost(config, faster, count, BF16)
    assert all(asdict(quick)[name] <= price for name, price in asdict(here).items())
    assert quick.fixed_seconds < here.fixed_seconds
