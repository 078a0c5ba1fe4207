import asyncio
import json
import math

import pytest

from paternoster_contract.cli.command import main


async def load(server, *flags: str) -> int:
    return await asyncio.to_thread(main, ["load", "--url", server.url, *flags])


async def bench_serve(server, *flags: str) -> int:
    return await asyncio.to_thread(main, ["bench", "serve", "--base-url", server.url, *flags])


async def test_json_is_the_document_alone_and_lengths_respect_the_servers_context(server, capsys):
    assert await load(server, "--num-prompts", "12", "--request-rate", "inf", "--json", "--ignore-eos") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["completed"], report["lost"], report["model_id"], report["request_rate"]) == (12, 0, "tiny", "inf")
    assert report["total_output_tokens"] == sum(body["max_tokens"] for body in server.bodies)
    assert all(len(body["prompt"]) + body["max_tokens"] <= 256 for body in server.bodies)
    assert all(body["ignore_eos"] and body["model"] == "tiny" for body in server.bodies)


async def test_a_trace_is_replayed_and_results_are_written(server, capsys, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,11,3\n0.05,12,4\n0.1,13,5\n")
    result, html = tmp_path / "result.json", tmp_path / "report.html"
    flags = ["--trace", str(trace), "--num-prompts", "2", "--save-result", str(result), "--save-detailed"]
    assert await load(server, *flags, "--html", str(html)) == 0
    assert "Serving Benchmark Result" in capsys.readouterr().out
    assert [(len(body["prompt"]), body["max_tokens"]) for body in server.bodies] == [(11, 3), (12, 4)]
    assert json.loads(result.read_text())["output_lens"] == [3, 4]
    assert "Requests in flight" in html.read_text(encoding="utf-8")


async def test_duration_repeats_the_requests(server, capsys):
    flags = ["--num-prompts", "2", "--request-rate", "inf", "--max-concurrency", "2", "--duration", "0.3", "--json"]
    assert await load(server, *flags, "--max-output-tokens", "2") == 0
    assert json.loads(capsys.readouterr().out)["completed"] > 2


async def test_a_lost_request_fails_the_run_and_a_refused_one_does_not(server, capsys):
    server.behaviour = server.REFUSE
    assert await load(server, "--num-prompts", "2", "--request-rate", "inf", "--json") == 0
    assert json.loads(capsys.readouterr().out)["refused"] == 2
    server.behaviour = server.CUT
    assert await load(server, "--num-prompts", "2", "--request-rate", "inf", "--json") == 1


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--model", "absent"], "model absent: is not served"),
        (["--trace", "nowhere.csv"], "nowhere.csv: cannot be read"),
        (["--num-prompts", "0"], "num-prompts is 0: must be above 0"),
        (["--request-rate", "0"], "request-rate is 0.0: must be above 0"),
        (["--request-rate", str(math.inf), "--duration", "1"], "needs max-concurrency"),
        (["--max-output-tokens", "2", "--min-output-tokens", "3"], "max-output-tokens is 2: must be at least 3"),
        (["--temperature", "-1"], "temperature is -1.0: must be at least 0"),
    ],
)
async def test_bad_input_is_one_clear_message_and_nothing_is_sent(server, capsys, flags, complaint):
    assert await load(server, *flags) == 2
    assert complaint in capsys.readouterr().err
    assert server.bodies == []


async def test_a_list_is_a_sweep_with_new_prompts_at_each_pace(server, capsys, tmp_path):
    html, result = tmp_path / "sweep.html", tmp_path / "sweep.json"
    flags = ["--num-prompts", "3", "--request-rate", "500,inf", "--max-concurrency", "1,2", "--max-output-tokens", "2"]
    assert await bench_serve(server, *flags, "--json", "--html", str(html), "--save-result", str(result)) == 0
    sweep = json.loads(capsys.readouterr().out)["sweep"]
    points = [(report["request_rate"], report["max_concurrency"]) for report in sweep]
    assert points == [(500.0, 1), (500.0, 2), ("inf", 1), ("inf", 2)]
    assert all(report["completed"] == 3 for report in sweep)
    assert len({tuple(body["prompt"]) for body in server.bodies}) == 12
    assert json.loads(result.read_text())["sweep"] == sweep
    assert "Time to first token" in html.read_text(encoding="utf-8")


async def test_a_sweep_ends_with_a_table(server, capsys):
    flags = ["--num-prompts", "2", "--request-rate", "200,inf", "--max-output-tokens", "2", "--goodput", "ttft:5000"]
    assert await bench_serve(server, *flags) == 0
    head, first, second = capsys.readouterr().out.splitlines()[-3:]
    assert head.split()[:3] == ["rate", "req/s", "goodput/s"]
    assert (first.split()[0], second.split()[0]) == ("200.00", "inf")
    assert first.split()[1] == first.split()[2], "nobody waits 5 s for the fake server"


async def test_warm_up_requests_are_sent_and_not_counted(server, capsys):
    flags = ["--num-prompts", "3", "--num-warmups", "5", "--request-rate", "inf", "--max-output-tokens", "2", "--json"]
    assert await bench_serve(server, *flags) == 0
    assert json.loads(capsys.readouterr().out)["completed"] == 3
    assert len(server.bodies) == 8
    prompts = [tuple(body["prompt"]) for body in server.bodies]
    assert not set(prompts[:5]) & set(prompts[5:])


async def test_a_server_that_does_not_tokenize_gets_words_and_counts_them(server, capsys):
    server.tokenizes = False
    flags = ["--num-prompts", "4", "--request-rate", "inf", "--max-output-tokens", "2", "--max-prompt-tokens", "40"]
    assert await bench_serve(server, *flags, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    probe, *sent = [body["prompt"] for body in server.bodies]
    assert len(probe.split()) == 100
    assert all(len(prompt.split()) <= 20 for prompt in sent), "two tokens a word, as its usage told"
    assert report["total_input_tokens"] == 2 * sum(len(prompt.split()) for prompt in sent)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--goodput", "ttft:100", "speed:3"], "goodput is 'speed:3': must be KEY:MS with KEY one of ttft"),
        (["--max-concurrency", "2,0"], "max-concurrency is 0: must be above 0"),
        (["--request-rate", "2,-1"], "request-rate is -1.0: must be above 0"),
        (["--metric-percentiles", "0"], "metric-percentiles is 0: must be above 0 and at most 100"),
        (["--num-warmups", "-1"], "num-warmups is -1: must be at least 0"),
        (["--timeout", "0"], "timeout is 0.0: must be above 0"),
    ],
)
async def test_bench_serve_names_what_is_wrong_before_it_sends(server, capsys, flags, complaint):
    assert await bench_serve(server, *flags) == 2
    assert f"paternoster bench serve: {complaint}" in capsys.readouterr().err
    assert server.bodies == []


async def test_percentiles_are_those_of_the_flag(server, capsys):
    flags = ["--num-prompts", "2", "--request-rate", "inf", "--max-output-tokens", "2", "--metric-percentiles", "50,95"]
    assert await bench_serve(server, *flags, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["p50_ttft_ms"] == pytest.approx(report["median_ttft_ms"])
    assert "p95_itl_ms" in report
    assert "p99_itl_ms" not in report
