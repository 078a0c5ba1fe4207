"""The real engine in process: the document of a server, and the counts that only the engine has."""

import json

import pytest

from paternoster_contract.cli.command import main

ENGINE = [
    "--",
    "--max-num-seqs", "3", "--max-batched-tokens", "32", "--max-model-len", "32", "--threads", "1",
    "--block-size", "4", "--kv-cache-memory", "750000",
]  # fmt: skip


def test_offline_and_tune_on_a_pool_too_small_for_all(capsys, tmp_path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n" + "0,8,10\n" * 5)
    flags = ["--trace", str(trace), "--ignore-eos", "--max-output-tokens", "10"]
    html = tmp_path / "offline.html"
    assert main(["bench", "offline", *flags, "--goodput", "e2el:1e9", "--json", "--html", str(html), *ENGINE]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["completed"], report["lost"], report["backend"]) == (5, 0, "in-process")
    assert report["total_output_tokens"] == 50
    assert report["requests_preempted"] > 0, "8 blocks of 4 tokens do not hold three requests of 18"
    assert report["preemption_rate"] == report["requests_preempted"] / 5
    assert report["request_goodput"] == report["request_throughput"]
    assert "Requests in flight" in html.read_text(encoding="utf-8")

    assert main(["bench", "tune", *flags, "--json", "--preemption-target", "0", *ENGINE]) == 0
    document = json.loads(capsys.readouterr().out)
    caps = [visit["live_cap"] for visit in document["visits"]]
    assert caps[0] == 3
    assert document["visits"][0]["preemption_rate"] > 0
    assert document["visits"][-1]["preemption_rate"] == 0
    assert document["chosen"] == caps[-1] < 3


def test_bad_flags_are_errors_before_the_model_is_loaded(capsys) -> None:
    assert main(["bench", "offline", "--num-prompts", "-1", "--", "package://nowhere"]) == 2
    assert "paternoster bench offline: num-prompts is -1: must be above 0" in capsys.readouterr().err


@pytest.mark.parametrize("benchmark", ["calibrate", "compare", "offline", "tune"])
def test_a_flag_of_serve_before_the_dashes_is_an_error_that_names_its_place(benchmark, capsys) -> None:
    for flag in (["--threads", "2"], ["--no-prefix-cache"]):
        with pytest.raises(SystemExit) as ended:
            main(["bench", benchmark, *flag])
        assert ended.value.code == 2
        line = f"paternoster bench {benchmark}: {flag[0]} is a flag of `paternoster serve`: must follow `--`\n"
        assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--no-such"], "paternoster bench tune --: error: unrecognized arguments: --no-such"),
        (
            ["--mode", "static"],
            "paternoster bench tune --: --mode was removed: an engine admits requests at every step",
        ),
    ],
)
def test_a_flag_after_the_dashes_that_serve_does_not_have_is_an_error(flags, complaint, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "tune", "--", *flags])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_model_after_the_dashes_is_the_one_of_serve(capsys) -> None:
    assert main(["bench", "tune", "--", "org/name", "--model", "package://other"]) == 2
    assert (
        "paternoster bench tune: MODEL is 'org/name' and --model 'package://other': give one" in capsys.readouterr().err
    )


def test_the_removed_alias_of_calibrate_names_its_successor(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--calibrate"])
    assert capsys.readouterr().err == "paternoster bench: --calibrate was removed: use `paternoster bench calibrate`\n"
