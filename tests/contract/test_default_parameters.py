"""Sampling settings that engines report: bounded, and the common ones of several engines."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from paternoster_contract.default_parameters import DefaultParameters
from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.sampling_defaults import defaults_of_generation_config

NUMBERS = st.floats(-3, 3) | st.integers(-2, 2**33) | st.sampled_from([0, 1, -1, 1e-5, 2**31 - 1])
NAMES = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_new_tokens"]


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -0.1}, {"temperature": 2.1}, {"temperature": float("nan")}, {"temperature": "hot"},
        {"top_p": 1.1}, {"top_k": -2}, {"top_k": 2**31}, {"top_k": 0.5}, {"min_p": float("inf")},
        {"repetition_penalty": 0}, {"max_tokens": 0}, {"max_tokens": 2**31}, {"max_tokens": [1]},
    ],
)  # fmt: skip
def test_what_no_request_could_have_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DefaultParameters(**values)


@given(st.dictionaries(st.sampled_from(NAMES), NUMBERS), st.booleans())
def test_every_default_of_an_engine_may_be_reported(values: dict[str, Any], sampled: bool) -> None:
    try:
        defaults = defaults_of_generation_config({**values, "do_sample": sampled}).list_set_values()
    except UnsupportedModelError:
        return
    assert DefaultParameters(**defaults).list_set_values() == defaults


@pytest.mark.parametrize(
    ("reported", "common"),
    [
        ([], None),
        ([None, None], None),
        ([{}], {}),
        ([None, {"top_k": 20}], {"top_k": 20}),
        ([{"top_k": 20, "top_p": 0.9}, {"top_k": 20, "top_p": 0.8}], {"top_k": 20}),
        ([{"top_k": 20}, {}], {}),
        ([{}, {"top_k": 20}], {}),
    ],
)
def test_of_several_engines_the_values_in_which_they_agree(
    reported: list[dict[str, Any] | None], common: dict[str, Any] | None
) -> None:
    found = DefaultParameters.find_common(None if each is None else DefaultParameters(**each) for each in reported)
    assert (None if found is None else found.list_set_values()) == common
