"""The publisher's sampling settings in a status: read as they were written, and none where somebody wrote others."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.default_parameters import LEAST_PENALTY, DefaultParameters
from paternoster_operator.api.types.status import DefaultParametersStatus
from paternoster_operator.report.default_parameters import read_default_parameters, write_default_parameters

SHARES = st.none() | st.floats(0, 1)
PARAMETERS = st.builds(
    DefaultParameters,
    temperature=st.none() | st.floats(0, 2),
    top_p=SHARES,
    top_k=st.none() | st.integers(-1, 2**31 - 1),
    min_p=SHARES,
    repetition_penalty=st.none() | st.floats(LEAST_PENALTY, 2),
    max_tokens=st.none() | st.integers(1, 2**31 - 1),
)


@given(PARAMETERS)
def test_they_are_read_as_they_were_written(parameters: DefaultParameters) -> None:
    written = write_default_parameters(parameters)
    DefaultParametersStatus.model_validate(written)  # what the CRD takes
    assert read_default_parameters({"defaultParameters": written}) == parameters


def test_fractions_are_strings_and_names_those_of_the_api() -> None:
    parameters = DefaultParameters(temperature=0.7, top_k=20, repetition_penalty=1, max_tokens=5)
    assert write_default_parameters(parameters) == {
        "temperature": "0.7", "topK": 20, "repetitionPenalty": "1.0", "maxTokens": 5,
    }  # fmt: skip


@pytest.mark.parametrize(
    "written",
    [None, [], "0.7", {"temperature": "hot"}, {"temperature": "3"}, {"temperature": "nan"}, {"topK": -2}, {"other": 1}],
)
def test_others_are_none(written: Any) -> None:
    assert read_default_parameters({"defaultParameters": written}) is None
    assert read_default_parameters({}) is None
