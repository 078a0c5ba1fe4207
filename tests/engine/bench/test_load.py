import asyncio
import json
import math

import pytest

from paternoster_contract.command import main


async def load(server, *flags: str) -> int:
    return await asyncio.to_thread(main, ["load", "--url", server.url, *flags])


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
