"""The engine's start-up settings: flags and values are two spellings of one model."""

import argparse

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
    lambda cap, live, budget, length, prefix, mode, name: {
        "max_num_seqs": cap,
        "live_cap": None if live is None else min(live, cap),
        "max_batched_tokens": cap + budget,
        "max_model_len": length,
        "prefix_cache": prefix,
        "mode": mode,
        "served_model_name": name,
    },
    st.integers(1, 4096),
    st.none() | st.integers(1, 4096),
    st.integers(0, 10_000),
    st.none() | st.integers(16, 100_000),
    st.booleans(),
    st.sampled_from(["continuous", "static"]),
    st.none() | st.from_regex(r"[a-z][a-z0-9/.-]{0,20}", fullmatch=True),
)


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
        (["--max-batched-tokens", "8"], ["max_batched_tokens is 8", "max_num_seqs", "64"]),
    ],
)
def test_settings_that_disagree_name_both(flags: list[str], words: list[str]) -> None:
    with pytest.raises(ValidationError) as refused:
        parse(flags)
    assert all(word in str(refused.value) for word in words)
