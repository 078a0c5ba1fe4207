"""``paternoster fit`` of a model that is on a hub: its config.json is all that is read."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from tests.sources.loopback_hub import LoopbackHub

from paternoster_contract.cli.command import main
from paternoster_contract.labels import MODEL_EXIT_STATUS

ROOT = Path(__file__).parents[2]
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
    output = capsys.readouterr().out
    assert "moe: 30.53 billion parameters, 56.9 GiB in bfloat16; 96 KiB of KV cache a token; context 40960" in output
    assert "8192" in output
    assert "1 x H100" in output
    assert "1 x L4 " not in output
    assert not (tmp_path / "models").exists()
    assert [request.path for request in (*hub.hub.received, *hub.cdn.received) if "safetensors" in request.path] == []
    assert hub.cdn.received == []


def test_what_is_not_there_is_named(hub: LoopbackHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "hf://org/none"]) == MODEL_EXIT_STATUS
    assert "paternoster fit: model 'hf://org/none'" in capsys.readouterr().err


def test_the_commands_in_a_manifest_of_the_catalogue_give_its_figures(
    hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    head = (ROOT / "examples/models/mistral-7b.yaml").read_text().partition("apiVersion:")[0]
    text = re.sub(r"\\\n#", " ", head)
    commands = [shlex.split(line[1:])[1:] for line in text.splitlines() if line.startswith("#   paternoster ")]
    assert [words[0] for words in commands] == ["fit", "simulate"]
    config = (ROOT / "tests/catalogue/configs/mistral-7b.json").read_bytes()
    hub.add("mistralai/Mistral-7B-Instruct-v0.3", {"config.json": config, "model.safetensors": b"none"})
    monkeypatch.chdir(tmp_path)
    assert main(commands[0]) == 0
    profile = yaml.safe_load((tmp_path / "mistral-7b.profile.yaml").read_text())
    assert "not measured" in profile["source"]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    capsys.readouterr()
    assert main([*commands[1], "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["slo_attainment"] >= 0.95
    comments = " ".join(line.removeprefix("# ") for line in head.splitlines())
    assert f"{outcome['generation_tokens'] / outcome['seconds']:,.0f} output tokens/s" in comments
    assert f"first token within {outcome['ttft_ms']['p95']:,.0f} ms and {outcome['itl_ms']['p95']:,.0f} ms" in comments


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpu", "GTX"], "gpu is 'GTX': must be one of L4, L40S, A100 40 GB, A100 80 GB, H100, H200, B200"),
        (["--profile", "here.yaml"], "gpu is unset: must name the GPU that the profile is of"),
        (["--gpu", "H100", "--profile", "/nowhere/here.yaml"], "profile is /nowhere/here.yaml: must be in a folder"),
    ],
)
def test_arguments_are_checked_before_a_model_is_asked_for(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "hf://org/none", *words]) == 2
    assert message in capsys.readouterr().err


def test_no_profile_is_written_of_what_does_not_fit(
    hub: LoopbackHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.add("org/moe", {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": b"none"})
    profile = tmp_path / "moe.yaml"
    assert main(["fit", "hf://org/moe", "--gpu", "L4", "--count", "1", "--profile", str(profile)]) == 1
    assert "It fits on none of 1 x L4." in capsys.readouterr().out
    assert not profile.exists()
