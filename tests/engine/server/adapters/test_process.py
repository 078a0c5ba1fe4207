"""A real engine process with adapters, its weights in blocks of few bits."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.engine.adapters import random_adapters

from paternoster_engine.model.checkpoints.checkpoint import Checkpoint


@pytest.mark.timeout(600)
def test_a_process_serves_adapters(
    run_engine: Callable[..., AbstractContextManager[Any]], checkpoint: Checkpoint, tmp_path: Path
) -> None:
    path = random_adapters.save_adapter(tmp_path / "adapter", checkpoint.config, ("q_proj", "gate_proj"), seed=1)
    with run_engine("--max-adapter-memory", "64Mi", "--served-model-name", "base") as engine:
        body = {"prompt": "The lift never stops", "max_tokens": 8, "temperature": 0, "ignore_eos": True}

        def complete(model: str) -> str:
            answer = httpx.post(f"{engine.url}/v1/completions", json={"model": model, **body}).json()
            assert answer["model"] == model
            text: str = answer["choices"][0]["text"]
            return text

        base = complete("base")
        loaded = httpx.post(
            f"{engine.admin_url}/v1/load_lora_adapter", json={"lora_name": "sql", "lora_path": str(path)}
        )
        assert loaded.status_code == 200, loaded.text
        assert complete("sql") == complete("sql") != base == complete("base")
        refused = httpx.post(f"{engine.url}/v1/load_lora_adapter", json={"lora_name": "x", "lora_path": str(path)})
        assert refused.status_code == 404, "clients load nothing"
        metrics = httpx.get(f"{engine.admin_url}/metrics").text
        assert 'paternoster_engine_adapter_loads_total{model_name="base"} 1.0' in metrics
