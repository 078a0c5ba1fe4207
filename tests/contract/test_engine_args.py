"""The engine's start-up settings: flags and values are two spellings of one model."""

import argparse
import re

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.settings.removed import REMOVED_FLAGS


def parse(flags: list[str]) -> EngineArgs:
    parser = argparse.ArgumentParser()
    EngineArgs.add_flags(parser)
    return EngineArgs.from_namespace(parser.parse_args(flags))


settings = st.builds(
    lambda cap, live, budget, length, prefix, name, pause, rest: {
        "max_num_seqs": cap,
        "live_cap": None if live is None else min(live, cap),
        "max_batched_tokens": None if budget is None else cap + budget,
        "token_budget": None if budget is None else cap + budget // 2,
        "max_model_len": length,
        "prefix_cache": prefix,
        "served_model_name": name,
        "pause_lower_classes": pause and rest.get("order") == "priority" and not rest.get("prefill_first"),
        **rest,
    },
    st.integers(1, 4096),
    st.none() | st.integers(1, 4096),
    st.none() | st.integers(0, 10_000),
    st.none() | st.integers(16, 100_000),
    st.booleans(),
    st.lists(st.from_regex(r"[a-z0-9/:.-]{1,20}", fullmatch=True), max_size=4, unique=True).map(tuple),
    st.booleans(),
    st.fixed_dictionaries(
        {},
        optional={
            "kv_cache_memory": st.none() | st.integers(0, 2**40),
            "gpu_memory_utilization": st.floats(0.01, 1.0),
            "prefill_first": st.booleans(),
            "tensor_parallel_size": st.integers(1, 64),
            "batch_invariant": st.booleans(),
            "await_prefix": st.booleans(),
            "admission": st.sampled_from(["greedy", "no-evict"]),
            "order": st.sampled_from(["fcfs", "priority", "fair-share"]),
            "speculative": st.sampled_from(["off", "grammar", "ngram"]),
            "priority_aging": st.floats(0, 100),
            "preemption": st.sampled_from(["recompute", "swap"]),
            "tenant_tokens_per_second": st.floats(0, 1e6),
            "tenant_weights": st.sampled_from(["", "alice=2", "alice=2,b c=0.5"])
            | st.dictionaries(st.from_regex(r"[^=,]{1,9}", fullmatch=True), st.floats(1e-9, 1e9)),
        },
    ),
)


@hypothesis.settings(deadline=None)
@given(settings)
@hypothesis.example({"tenant_weights": {"-": 1.0}})
def test_flags_round_trip(values: dict[str, object]) -> None:
    args = EngineArgs.model_validate(values)
    assert parse(args.to_flags()) == args


def test_defaults_need_no_flag() -> None:
    assert EngineArgs().to_flags() == []
    assert parse([]) == EngineArgs()


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        (["--max-num-seqs", "0"], "max_num_seqs"),
        (["--max-num-seqs", "many"], "max_num_seqs"),
        (["--dtype", "int3"], "dtype"),
        (["--port", "70000"], "port"),
        (["--order", "random"], "order"),
        (["--tenant-weights", "alice"], "tenant_weights"),
        (["--tenant-weights", "alice=-1"], "tenant_weights"),
        (["--tenant-weights", "alice=nan"], "tenant_weights"),
        (["--tenant-weights", "alice=inf"], "tenant_weights"),
        (["--tenant-weights", "=1"], "tenant_weights"),
        (["--tenant-weights", "a=b=1"], "tenant_weights"),
    ],
)
def test_a_bad_value_names_its_field(flags: list[str], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        parse(flags)
    assert [error["loc"] for error in refused.value.errors()] == [(field,)]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--live-cap", "9", "--max-num-seqs", "8"], ["live_cap is 9", "max_num_seqs", "8"]),
        (["--token-budget", "99", "--max-batched-tokens", "64"], ["token_budget is 99", "max_batched_tokens", "64"]),
        (["--token-budget", "7", "--live-cap", "8"], ["token_budget is 7", "at least 8"]),
        (["--reserved-slots", "8", "--max-num-seqs", "8"], ["reserved_slots is 8", "max_num_seqs"]),
        (["--pause-lower-classes"], ["pause_lower_classes", "order 'priority'"]),
        (["--pause-lower-classes", "--order", "priority", "--prefill-first"], ["pause_lower_classes", "prefill_first"]),
        (["--tenant-weights", "alice=0"], ["tenant_weights", "'alice'", "above 0"]),
        (["--speculative", "draft"], ["speculative is 'draft'", "without draft_model"]),
        (["--draft-model", "package://d"], ["draft_model is 'package://d'", "speculative 'auto'"]),
        (
            ["--speculative", "draft", "--draft-model", "package://d", "--tensor-parallel-size", "2"],
            ["tensor_parallel_size is 2", "must be 1", "speculative 'draft'"],
        ),
        (
            ["--max-adapter-memory", "1Gi", "--tensor-parallel-size", "2"],
            ["max_adapter_memory is 1073741824", "must be 0", "tensor_parallel_size 2"],
        ),
        (["--max-batched-tokens", "8"], ["max_batched_tokens is 8", "max_num_seqs", "64"]),
    ],
)
def test_settings_that_disagree_name_both(flags: list[str], words: list[str]) -> None:
    with pytest.raises(ValidationError) as refused:
        parse(flags)
    assert all(word in str(refused.value) for word in words)


def test_weights_by_name() -> None:
    args = parse(["--tenant-weights", "alice=2,b c=0.5"])
    assert args.tenant_weights == {"alice": 2.0, "b c": 0.5}
    assert EngineArgs().tenant_weights == {}


@pytest.mark.parametrize("name", REMOVED_FLAGS)
@pytest.mark.parametrize("value", [(), ("on",)])
def test_a_removed_flag_names_what_to_do_instead(
    name: str, value: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    flag = "--" + name.replace("_", "-")
    with pytest.raises(SystemExit) as ended:
        parse([flag, *value])
    assert ended.value.code == 2
    complaint = capsys.readouterr().err
    assert f"{flag} {REMOVED_FLAGS[name]}" in complaint
    assert name not in EngineArgs.model_fields
    # The successor that it names is a flag.
    named = re.search(r"use --([a-z-]+)", complaint)
    assert named is None or named[1].replace("-", "_") in EngineArgs.model_fields


def test_removed_flags_are_not_in_the_help() -> None:
    parser = argparse.ArgumentParser()
    EngineArgs.add_flags(parser)
    removed = [name.replace("_", "-") for name in REMOVED_FLAGS]
    assert not [flag for flag in removed if re.search(rf"--{flag}\b", parser.format_help())]


def test_flags_that_pods_have_already_keep_their_order() -> None:
    """Another order is another pod template, which restarts every pod."""
    given = {
        "vllm_metrics": True, "drain_timeout": 5, "max_priority": 9, "min_priority": 1, "order": "priority",
        "cache_isolation": "fleet", "prefix_cache": False, "parse_special_tokens": True, "max_queued_requests": 9,
        "kv_cache_memory": 5, "block_size": 16, "max_batched_tokens": 99, "max_model_len": 77, "max_num_seqs": 3,
        "batch_invariant": True, "tensor_parallel_size": 2, "threads": 1, "device": "cpu", "dtype": "float32",
        "identity_header": True, "admin_keys": "b", "api_keys": "a", "admin_port": 2, "port": 1, "host": "::",
        "served_model_name": "m", "model": "file:///m", "max_connections": 20, "max_headers": 20,
        "max_header_bytes": 2000, "admission": "no-evict", "swap_memory": 5, "tenant_weights": "a=1",
    }  # fmt: skip
    names = [
        word[2:].removeprefix("no-").replace("-", "_")
        for word in EngineArgs.model_validate(given).to_flags()
        if word[:2] == "--"
    ]
    assert names == [
        "max_header_bytes", "max_headers", "max_connections", "model", "served_model_name", "host", "port",
        "admin_port", "api_keys", "admin_keys", "identity_header", "dtype", "device", "threads",
        "tensor_parallel_size", "batch_invariant", "max_num_seqs", "max_model_len", "max_batched_tokens", "block_size",
        "kv_cache_memory", "max_queued_requests", "parse_special_tokens", "prefix_cache", "cache_isolation", "order",
        "min_priority", "max_priority", "drain_timeout", "vllm_metrics", *names[-3:],
    ]  # fmt: skip
    assert set(names) == given.keys()


def test_a_copy_is_checked_as_a_whole() -> None:
    args = EngineArgs(max_num_seqs=8)
    assert args.replace(live_cap=8).live_cap == 8
    with pytest.raises(ValidationError, match="live_cap is 9"):
        args.replace(live_cap=9)


def test_served_names_are_given_as_vllm_gives_them() -> None:
    assert parse(["--served-model-name", "a", "mistral:latest", "--port", "1"]).served_model_name == (
        "a",
        "mistral:latest",
    )
    assert parse(["--served-model-name=a", "--served-model-name=b", "--served-model-name", "a"]).served_model_name == (
        "a",
        "b",
    )
    assert EngineArgs(served_model_name="a").to_flags() == ["--served-model-name", "a"]


@pytest.mark.parametrize("names", [[""], ["a" * 513], [f"m{i}" for i in range(18)]])
def test_served_names_are_bounded_in_length_and_count(names: list[str]) -> None:
    with pytest.raises(ValidationError, match="served_model_name"):
        parse(["--served-model-name", *names])
