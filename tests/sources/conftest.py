"""A cache of the test's own, a hub on loopback, and no credentials of the user who runs the tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sources.loopback_hub import LoopbackHub

from paternoster_contract.labels import MODELS_ENV, MODELS_LIMIT_ENV
from paternoster_sources.storage.cache import DownloadCache


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("HF_", "AWS_", "GOOGLE_", "HUGGING")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv(MODELS_ENV, str(tmp_path / "models"))
    monkeypatch.delenv(MODELS_LIMIT_ENV, raising=False)


@pytest.fixture
def cache(tmp_path: Path) -> DownloadCache:
    return DownloadCache(tmp_path / "models")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    with LoopbackHub().running() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub
