"""``paternoster simulate`` from arguments to what it prints."""

import argparse
import json
from pathlib import Path

import pytest

from paternoster_simulator.commands import simulate

MANIFEST = """\
apiVersion: paternoster.dev/v1alpha1
kind: LLMDeployment
metadata: {name: chat}
spec:
  model: {source: "file:///model"}
  autoscaling: {minReplicas: 1, maxReplicas: 4}
  concurrency: {mode: Auto, min: 8}
"""
TRACE = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i / 2},{100 + i},{10 + i % 7}\n" for i in range(40))


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "chat.yaml"
    path.write_text(MANIFEST)
    return path


def run(*words: object) -> int:
    parser = argparse.ArgumentParser()
    simulate.add_arguments(parser)
    return simulate.run(parser.parse_args([str(word) for word in words]))


def test_the_document_has_what_a_comparison_needs(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-f", manifest, "--trace", "synthetic:spike", "--rate", 12, "--duration", 60, "--json", "--seed", 3]
    assert run(*words) == 0
    first = json.loads(capsys.readouterr().out)
    needed = {
        "slo_attainment", "preemption_rate", "recomputed_tokens", "gpu_hours", "scale_events", "requests", "lost",
        "series", "decisions",
    }  # fmt: skip
    assert needed <= first.keys()
    assert first["requests"] > 12 * 60
    assert first["finished"] + first["lost"] == first["requests"]
    assert run(*words) == 0
    assert json.loads(capsys.readouterr().out) == first


def test_the_summary_counts_every_request_of_a_trace(
    manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    report = tmp_path / "report.html"
    assert run("-f", manifest, "--trace", trace, "--speed", 2, "--report", report) == 0
    out = capsys.readouterr().out
    assert "requests      40: 40 finished, 0 lost" in out
    assert "virtual time  10 s" in out
    assert "Live cap" in report.read_text()


def test_a_rate_and_a_duration_repeat_a_trace(
    manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    assert run("-f", manifest, "--trace", trace, "--rate", 10, "--duration", 30, "--json") == 0
    assert 290 <= json.loads(capsys.readouterr().out)["requests"] <= 310


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--trace", "synthetic:flood"], "pattern is 'flood': must be one of constant"),
        (["--trace", "synthetic", "--speed", "2"], "--speed is 2.0: is for trace files"),
        (["--trace", "nowhere.csv"], "nowhere.csv: cannot be read"),
        (["--profile", "h999"], "profile is 'h999': must be"),
        (["--policy", "dice", "--duration", "1"], "policy is 'dice': must be one of"),
        (["--start-replicas", "-1", "--duration", "1"], "start_replicas is -1: must be at least 0"),
    ],
)
def test_a_wrong_flag_is_named_with_its_value(
    manifest: Path, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("-f", manifest, *words) == 2
    assert complaint in capsys.readouterr().err


def test_a_manifest_has_one_fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(MANIFEST + "---\n" + MANIFEST.replace("chat", "other"))
    assert run("-f", path) == 2
    assert "has 2 LLMDeployments (chat, other): must have one" in capsys.readouterr().err
