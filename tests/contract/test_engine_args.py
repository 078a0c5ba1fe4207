"""The engine's start-up settings: flags and values are two spellings of one model."""

import argparse

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from paternoster_contract.engine_args import EngineArgs


def parse(flags: list[str]) -> EngineArgs:
    parser = argparse.ArgumentParser()
    EngineArgs.add_flags(parser)
    return EngineArgs.from_namespace(parser.parse_args(flags))


settings = st.builds(
    lambda cap, live, budget, length, prefix, mode, name, pause, rest: {
        "max_num_seqs": cap,
        "live_cap": None if live is None else min(live, cap),
        "max_batched_tokens": None if budget is None else cap + budget,
        "token_budget": None if budget is None else cap + budget // 2,
        "max_model_len": length,
        "prefix_cache": prefix,
        "mode": mode,
        "served_model_name": name,
        "pause_lower_classes": pause and rest.get("order") == "priority" and not rest.get("prefill_first"),
        **rest,
    },
    st.integers(1, 4096),
    st.none() | st.integers(1, 4096),
    st.none() | st.integers(0, 10_000),
    st.none() | st.integers(16, 100_000),
    st.booleans(),
    st.sampled_from(["continuous", "dynamic", "static"]),
    st.none() | st.from_regex(r"[a-z][a-z0-9/.-]{0,20}", fullmatch=True),
    st.booleans(),
    st.fixed_dictionaries(
        {},
        optional={
            "batch_size": st.none() | st.integers(1, 100),
            "batch_wait": st.floats(0, 10),
            "kv_cache_memory": st.none() | st.integers(0, 2**40),
            "gpu_memory_utilization": st.floats(0.01, 1.0),
            "prefill_first": st.booleans(),
            "tensor_parallel_size": st.integers(1, 64),
            "batch_invariant": st.booleans(),
            "await_prefix": st.booleans(),
            "admission": st.sampled_from(["greedy", "no-evict", "full-reserve"]),
            "order": st.sampled_from(["fcfs", "priority", "fair-share", "deadline"]),
            "priority_aging": st.floats(0, 100),
            "victim": st.sampled_from(["least-computed", "last-in", "priority"]),
            "preemption": st.sampled_from(["recompute", "swap", "auto"]),
            "user_tokens_per_second": st.floats(0, 1e6),
            "user_weights": st.sampled_from(["", "alice=2", "alice=2,b c=0.5"]),
        },
    ),
)


@hypothesis.settings(deadline=None)
@given(settings)
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
        (["--user-weights", "alice"], "user_weights"),
        (["--user-weights", "alice=-1"], "user_weights"),
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
        (["--pause-lower-classes"], ["pause_lower_classes", "order 'fcfs'"]),
        (["--pause-lower-classes", "--order", "priority", "--prefill-first"], ["pause_lower_classes", "prefill_first"]),
        (["--user-weights", "alice=0"], ["user_weights", "'alice'", "above 0"]),
        (["--max-batched-tokens", "8"], ["max_batched_tokens is 8", "max_num_seqs", "64"]),
    ],
)
def test_settings_that_disagree_name_both(flags: list[str], words: list[str]) -> None:
    with pytest.raises(ValidationError) as refused:
        parse(flags)
    assert all(word in str(refused.value) for word in words)


def test_weights_by_name() -> None:
    args = EngineArgs(user_weights="alice=2,b c=0.5")
    assert args.weights == {"alice": 2.0, "b c": 0.5}
    assert EngineArgs().weights == {}
