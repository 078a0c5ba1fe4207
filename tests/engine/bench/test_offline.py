"""The real engine in process: the document of a server, and what only the engine knows."""

import json

from paternoster_contract.cli.command import main

ENGINE = [
    "--max-num-seqs", "3", "--max-batched-tokens", "32", "--max-model-len", "32", "--threads", "1",
    "--block-size", "4", "--kv-cache-memory", "750000",
]  # fmt: skip


def test_offline_and_tune_on_a_pool_too_small_for_all(capsys, tmp_path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n" + "0,8,10\n" * 5)
    flags = ["--trace", str(trace), "--ignore-eos", "--max-output-tokens", "10", *ENGINE]
    html = tmp_path / "offline.html"
    assert main(["bench", "offline", *flags, "--goodput", "e2el:1e9", "--json", "--html", str(html)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["completed"], report["lost"], report["backend"]) == (5, 0, "in-process")
    assert report["total_output_tokens"] == 50
    assert report["requests_preempted"] > 0, "8 blocks of 4 tokens do not hold three requests of 18"
    assert report["preemption_rate"] == report["requests_preempted"] / 5
    assert report["request_goodput"] == report["request_throughput"]
    assert "Requests in flight" in html.read_text(encoding="utf-8")

    assert main(["bench", "tune", *flags, "--json", "--preemption-target", "0"]) == 0
    document = json.loads(capsys.readouterr().out)
    caps = [visit["live_cap"] for visit in document["visits"]]
    assert caps[0] == 3
    assert document["visits"][0]["preemption_rate"] > 0
    assert document["visits"][-1]["preemption_rate"] == 0
    assert document["chosen"] == caps[-1] < 3


def test_bad_flags_are_told_before_the_model_is_loaded(capsys) -> None:
    assert main(["bench", "offline", "--model", "package://nowhere", "--num-prompts", "-1"]) == 2
    assert "paternoster bench offline: num-prompts is -1: must be above 0" in capsys.readouterr().err
