"""Adapters (LoRA) from the hub: their two files alone, as the source has them now, within bounds."""

from pathlib import Path

import pytest
from tests.sources.loopback_hub import LoopbackHub

from paternoster_contract.labels import ADAPTERS_ENV, ADAPTERS_LIMIT_ENV, MODELS_ENV
from paternoster_sources.errors import CacheUnusable, NoWeights, SourceNotFound, TooLarge
from paternoster_sources.fetch import fetch_adapter, fetch_model
from paternoster_sources.storage.cache import DownloadCache

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FILES = {CONFIG: b"{}", WEIGHTS: b"first" * 1000}


def test_an_adapter_is_its_two_files_whatever_lies_beside_them(hub: LoopbackHub, cache: DownloadCache) -> None:
    base = {"config.json": b"{}", "model.safetensors": b"base", "tokenizer.json": b"{}", "optimizer.pt": b"x"}
    hub.add("org/sql", {**FILES, **base, f"checkpoint-10/{WEIGHTS}": b"earlier"})
    adapter = fetch_adapter("hf://org/sql", cache, 10_000)
    assert {file.name: file.read_bytes() for file in adapter.path.iterdir()} == FILES
    assert (fetch_model("hf://org/sql", cache).path / "model.safetensors").read_bytes() == b"base"


def test_a_branch_that_moved_is_fetched_anew_and_nothing_twice(hub: LoopbackHub, cache: DownloadCache) -> None:
    hub.add("org/sql", FILES)
    first = fetch_adapter("hf://org/sql", cache, 10_000)
    assert fetch_adapter("hf://org/sql", cache, 10_000).path == first.path
    assert len(hub.cdn.received) == 1
    hub.add("org/sql", {**FILES, WEIGHTS: b"other" * 1000}, commit="b" * 40)
    assert (fetch_adapter("hf://org/sql", cache, 10_000).path / WEIGHTS).read_bytes() == b"other" * 1000
    assert (first.path / WEIGHTS).read_bytes() == FILES[WEIGHTS]


def test_adapters_that_no_engine_has_are_evicted_for_another(hub: LoopbackHub, tmp_path: Path) -> None:
    cache = DownloadCache(tmp_path / "adapters", limit=12_000)
    held = {}
    for name in ("one", "two", "three"):
        hub.add(f"org/{name}", {**FILES, WEIGHTS: name[0].encode() * 5000})
        adapter = fetch_adapter(f"hf://org/{name}", cache, 10_000)
        if name == "one":
            held[name] = adapter
        else:
            assert adapter.lease is not None
            adapter.lease.close()
    assert (held["one"].path / WEIGHTS).exists()
    assert not list((tmp_path / "adapters").glob("*two*/files"))


@pytest.mark.parametrize(
    ("files", "address", "error", "message"),
    [
        ({CONFIG: b"{}"}, "hf://org/sql", NoWeights, f"has no {WEIGHTS}: must be a folder with an adapter"),
        ({WEIGHTS: b"w"}, "hf://org/sql", NoWeights, f"has no {CONFIG}"),
        ({CONFIG: b"{}", "adapter_model.bin": b"w"}, "hf://org/sql", NoWeights, f"has no {WEIGHTS}"),
        ({**FILES, "a.gguf": b"w"}, "hf://org/sql/a.gguf", NoWeights, "names the file 'a.gguf'"),
        ({**FILES, WEIGHTS: b"w" * 20_000}, "hf://org/sql", TooLarge, "has 20002 bytes: must be at most 10000"),
        (FILES, "hf://org/other", SourceNotFound, "org/other"),
    ],
)
def test_what_is_no_adapter_is_refused_before_a_byte_is_fetched(
    files: dict[str, bytes],
    address: str,
    error: type[Exception],
    message: str,
    hub: LoopbackHub,
    cache: DownloadCache,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", hub.token)
    hub.add("org/sql", files)
    with pytest.raises(error, match=message.replace("'", ".")):
        fetch_adapter(address, cache, 10_000)
    assert not hub.cdn.received


def test_adapters_have_a_folder_of_their_own_where_the_models_are_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ADAPTERS_ENV, raising=False)
    monkeypatch.setenv(MODELS_ENV, str(tmp_path / "models"))
    assert DownloadCache.for_adapters().folder == tmp_path / "models"
    monkeypatch.setenv(ADAPTERS_ENV, str(tmp_path / "adapters"))
    monkeypatch.setenv(ADAPTERS_LIMIT_ENV, "12000")
    assert (DownloadCache.for_adapters().folder, DownloadCache.for_adapters().limit) == (tmp_path / "adapters", 12_000)
    monkeypatch.setenv(ADAPTERS_LIMIT_ENV, "1Gi")
    with pytest.raises(CacheUnusable, match="PATERNOSTER_ADAPTERS_LIMIT is '1Gi'"):
        DownloadCache.for_adapters()
