"""Settings that are left out, on each kind of device, and those that a device refuses."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.limits import EngineLimits, scheduler_config, who_proposes
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.errors import ModelError

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
MODEL = ModelConfig("llama", "m", 100, 64, 96, 1, 8, 4, 8, 4096, 1e4, 1e-5, tied_embeddings=False)


def resolve(device: torch.device, **settings: Any) -> EngineLimits:
    return EngineLimits.resolve_limits(EngineArgs(**settings), MODEL, device)


@pytest.mark.parametrize(("device", "tokens", "memory"), [(CPU, 512, 512 * 2**20), (CUDA, 8192, 0)])
def test_what_is_left_out_comes_from_device_and_model(device: torch.device, tokens: int, memory: int) -> None:
    assert resolve(device) == EngineLimits(64, tokens, 4096, 32, memory)


@pytest.mark.parametrize(("device", "proposer"), [(CPU, "ngram"), (CUDA, "off")])
def test_who_proposes_where_no_proposer_is_named(device: torch.device, proposer: str) -> None:
    assert who_proposes(EngineArgs(), device) == proposer
    assert who_proposes(EngineArgs(speculative="grammar"), device) == "grammar"


@given(st.sampled_from([CPU, CUDA]), st.integers(1, 4096), st.integers(0, 9000), st.integers(0, 2**40))
def test_what_is_given_counts_on_any_device(device: torch.device, seqs: int, more: int, memory: int) -> None:
    given = {"max_num_seqs": seqs, "max_batched_tokens": seqs + more, "kv_cache_memory": memory, "max_model_len": 99}
    limits = resolve(device, block_size=16, **given)
    assert {name: getattr(limits, name) for name in given} == given
    # Every running sequence can advance in a step, whatever the default.
    assert resolve(device, max_num_seqs=seqs).max_batched_tokens >= seqs


@given(st.integers(1, 1024))
def test_cuda_takes_blocks_that_are_tiles(block_size: int) -> None:
    assert resolve(CPU, block_size=block_size).block_size == block_size
    if block_size in (16, 32, 64):
        assert resolve(CUDA, block_size=block_size).block_size == block_size
    else:
        with pytest.raises(ModelError, match=f"block_size is {block_size}: must be one of 16, 32, 64 on cuda"):
            resolve(CUDA, block_size=block_size)


def test_the_context_bounds_a_sequence() -> None:
    with pytest.raises(ModelError, match="max_model_len is 5000: must be at most 4096, the context of m"):
        resolve(CPU, max_model_len=5000)


def test_every_setting_of_scheduling_reaches_the_scheduler() -> None:
    """Each of a value that is not its default, but for those that exclude each other."""
    args = EngineArgs(
        max_num_seqs=9, block_size=8, max_queued_requests=7, prefix_cache=False, await_prefix=False,
        pause_lower_classes=True, admission="no-evict", order="priority",
        priority_aging=4.0, reserved_slots=2, preemption="swap", max_queued_per_tenant=5,
        max_running_per_tenant=6, tenant_tokens_per_second=11.0, tenant_token_burst=12.0, tenant_weights={"a": 2.0},
        speculative="ngram",
    )  # fmt: skip
    sizes = {
        "max_batched_tokens": 64, "max_model_len": 99, "num_blocks": 50, "watermark_blocks": 1, "host_blocks": 4,
        "overlap": True, "force_preempt_every": 13, "whole_prompts": False, "windows": (None, 64),
    }  # fmt: skip
    config = scheduler_config(args, **sizes)
    assert {name: getattr(config, name) for name in sizes} == sizes
    shared = SchedulerConfig.model_fields.keys() - sizes.keys()
    assert {name: getattr(config, name) for name in shared} == {name: getattr(args, name) for name in shared}
    defaults = SchedulerConfig(max_batched_tokens=512, max_model_len=4096, num_blocks=9)
    # Excluded by the classes.
    assert {name for name in shared if getattr(config, name) == getattr(defaults, name)} == {"prefill_first"}


@pytest.mark.parametrize(
    ("settings", "order"),
    [
        ({}, "fcfs"),
        ({"api_keys": "keys"}, "fair-share"),
        ({"api_keys": "keys", "order": "fcfs"}, "fcfs"),
        ({"order": "priority"}, "priority"),
    ],
)
def test_engines_with_keys_share_themselves_out_by_tenant(settings: dict[str, Any], order: str) -> None:
    sizes = {"max_batched_tokens": 64, "max_model_len": 99, "num_blocks": 50}
    assert scheduler_config(EngineArgs(**settings), **sizes).order == order


def test_defaults_of_engine_and_scheduler_are_the_same() -> None:
    args, config = EngineArgs(), SchedulerConfig(max_batched_tokens=512, max_model_len=4096, num_blocks=9)
    shared = SchedulerConfig.model_fields.keys() & EngineArgs.model_fields.keys() - {
        "max_batched_tokens",
        "max_model_len",
        "order",
    }
    assert {name: getattr(config, name) for name in shared} == {name: getattr(args, name) for name in shared}
