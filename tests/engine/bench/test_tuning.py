"""The walk down to a cap that does not preempt, in process and over the admin API."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.cli.command import main
from paternoster_engine.bench.tuning import choose_report, default_admin_url, format_visits, next_cap, walk_caps


def rates(good_from: int):
    """A visit whose preemptions end at that cap."""

    async def visit(cap: int):
        return {"live_cap": cap, "preemption_rate": 0.0 if cap <= good_from else 0.5}

    return visit


@given(st.integers(1, 4096), st.integers(1, 90))
def test_the_next_cap_is_lower_until_there_is_none(cap: int, percent: int) -> None:
    lower = next_cap(cap, percent)
    assert 1 <= lower < cap or (cap == 1 and lower == 1)


@given(st.integers(1, 300), st.integers(0, 300), st.integers(1, 90))
def test_the_walk_stops_at_the_first_cap_that_is_low_enough(start: int, good: int, percent: int) -> None:
    reports = asyncio.run(walk_caps(rates(good), start, target=0.02, decrease_percent=percent))
    caps = [report["live_cap"] for report in reports]
    assert caps[0] == start
    assert caps == sorted(set(caps), reverse=True)
    assert all(cap > good for cap in caps[:-1])
    assert caps[-1] <= good or caps[-1] == 1
    assert choose_report(reports, 0.02) == (caps[-1] if caps[-1] <= good else None)


async def tune(server, *flags: str) -> int:
    traffic = ["--num-prompts", "4", "--max-output-tokens", "3"]
    urls = ["--url", server.url, "--admin-url", server.admin_url]
    return await asyncio.to_thread(main, ["bench", "tune", *urls, *traffic, *flags])


async def test_a_running_engine_is_walked_down_and_gets_its_cap_back(server, capsys) -> None:
    server.preempts_above = 3
    assert await tune(server, "--json", "--decrease-percent", "30") == 0
    document = json.loads(capsys.readouterr().out)
    assert [visit["live_cap"] for visit in document["visits"]] == [6, 4, 2]
    assert [visit["preemption_rate"] for visit in document["visits"]] == [1.0, 1.0, 0.0]
    assert (document["chosen"], document["preemption_target"]) == (2, 0.02)
    assert server.caps == [6, 4, 2, 5], "the last one is what it had before"
    prompts = [tuple(body["prompt"]) for body in server.bodies]
    assert len(set(prompts)) == len(prompts) == 12, "no visit is served from the prefix cache of another"


async def test_no_cap_is_low_enough(server, capsys) -> None:
    server.preempts_above = 0
    assert await tune(server, "--start", "2") == 1
    assert "no cap keeps preemptions within 2.0%" in capsys.readouterr().out
    assert server.caps == [2, 1, 5]


async def test_a_server_without_the_admin_api_is_an_error_that_names_the_path(server, capsys) -> None:
    server.admin = False
    assert await tune(server) == 2
    assert "/admin/config: HTTP 404: needs an engine's admin API" in capsys.readouterr().err
    assert server.bodies == []


async def test_a_server_without_an_admin_port_is_an_error_that_names_the_flag(server, capsys) -> None:
    await server.admin_runner.cleanup()
    assert await tune(server) == 2
    error = capsys.readouterr().err
    assert f"{server.admin_url}/admin/config: " in error
    assert "needs an engine with --admin-port, which --admin-url names" in error
    assert server.bodies == []


@pytest.mark.parametrize(
    ("url", "admin_url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8001"),
        ("http://engine/", "http://engine:8001"),
        ("https://[fd00::1]:443/llm", "https://[fd00::1]:8001"),
    ],
)
def test_the_admin_api_is_on_its_port_of_the_urls_host_by_default(url: str, admin_url: str) -> None:
    assert default_admin_url(url) == admin_url


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--start", "7"], "start is 7: must be at most 6, the capacity"),
        (["--start", "0"], "start is 0: must be at least 1"),
        (["--preemption-target", "100"], "preemption-target is 100.0: must be a percentage"),
        (["--decrease-percent", "95"], "decrease-percent is 95: must be 1 to 90"),
        (["--", "--max-batched-tokens", "x"], "--max-batched-tokens is 'x'"),
    ],
)
async def test_bad_flags_are_one_clear_message(server, capsys, flags, complaint) -> None:
    assert await tune(server, *flags) == 2
    assert f"paternoster bench tune: {complaint}" in capsys.readouterr().err
    assert server.bodies == []


def test_a_line_for_each_visit() -> None:
    numbers = dict.fromkeys(("median_ttft_ms", "p99_ttft_ms", "median_itl_ms", "p99_itl_ms"), 1.0)
    visit = {"live_cap": 8, "preemption_rate": 0.01, "recomputed_tokens": 5, "output_throughput": 10.0, **numbers}
    lines = format_visits([visit], 0.02).splitlines()
    assert lines[1].split()[:4] == ["8", "1.0%", "5", "10.0"]
    assert lines[-1].startswith("live cap 8: the highest visited")
