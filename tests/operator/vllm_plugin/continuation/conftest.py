"""A vLLM that believes its gateway's headers."""

import pytest

from paternoster_vllm.continuation import GATEWAY_ENV


@pytest.fixture(autouse=True)
def gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GATEWAY_ENV, "1")
