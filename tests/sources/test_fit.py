"""``paternoster fit`` of a model that is on a hub: its config.json is all that is read."""

import json
from pathlib import Path

import pytest
from loopback_hub import LoopbackHub

from paternoster_contract.command import main
from paternoster_contract.labels import MODEL_EXIT_STATUS

CONFIG = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151_936, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 40_960, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
    "norm_topk_prob": True,
}  # fmt: skip


def test_a_model_of_30_billion_is_not_downloaded(
    hub: LoopbackHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = b"weights" * 1000
    hub.add("org/moe", {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": weights})
    assert main(["fit", "hf://org/moe", "--tokens", "8192"]) == 0
    said = capsys.readouterr().out
    assert "moe: 30.53 billion parameters, 56.9 GiB in bfloat16; 96 KiB of KV cache a token; context 40960" in said
    assert "sequences of 8192" in said
    assert "1 x H100" in said
    assert "1 x L4 " not in said
    assert not (tmp_path / "models").exists()
    assert [asked.path for asked in (*hub.hub.asked, *hub.cdn.asked) if "safetensors" in asked.path] == []
    assert hub.cdn.asked == []


def test_what_is_not_there_is_named(hub: LoopbackHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "hf://org/none"]) == MODEL_EXIT_STATUS
    assert "paternoster fit: model 'hf://org/none'" in capsys.readouterr().err
