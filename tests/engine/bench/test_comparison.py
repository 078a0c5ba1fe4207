"""Contenders in turns, and the ratios that are reported of them."""

import asyncio
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.cli.command import main
from paternoster_engine.bench.comparison import RATIOS, compute_ratios, format_comparison, order_turns
from paternoster_load.reports.spread import Spread


@given(st.lists(st.text(min_size=1), min_size=2, max_size=5, unique=True), st.integers(1, 6))
def test_each_turn_has_all_contenders_and_none_is_always_first(names: list[str], repeats: int) -> None:
    order = order_turns(names, repeats)
    assert len(order) == repeats
    assert all(sorted(turn) == sorted(names) for turn in order)
    assert all(a == b[::-1] for a, b in itertools.pairwise(order))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_a_spread_is_in_order(values: list[float]) -> None:
    spread = Spread.from_values(values)
    assert spread.least <= spread.median <= spread.most
    assert {spread.least, spread.most} <= set(values)


def report(throughput: float, **changes: float) -> dict[str, float]:
    return dict.fromkeys(RATIOS, 1.0) | {"mean_e2el_ms": 5.0, "output_throughput": throughput, **changes}


def test_ratios_are_of_the_same_repetition() -> None:
    runs = {"static": [report(10.0), report(20.0)], "continuous": [report(20.0), report(30.0)]}
    compared = compute_ratios(runs, "static")
    assert list(compared) == ["continuous"]
    assert compared["continuous"]["output_throughput"] == Spread(1.75, 1.5, 2.0)
    lines = format_comparison(runs, compared, "static").splitlines()
    assert lines[0].startswith("static      15.00 (10.00 to 20.00) tok/s")
    assert "continuous / static:" in lines


def test_nothing_is_divided_by_zero() -> None:
    runs = {"a": [report(10.0, mean_ttft_ms=0.0)], "b": [report(20.0)]}
    assert "mean_ttft_ms" not in compute_ratios(runs, "a")["b"]


def test_modes_of_the_real_engine(capsys, tmp_path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,9,2\n0,5,9\n0,7,3\n0,6,8\n0,8,2\n0,4,7\n")
    engine = ["--max-num-seqs", "2", "--max-batched-tokens", "32", "--max-model-len", "64", "--threads", "1"]
    flags = ["--modes", "static,continuous", "--trace", str(trace), "--repeats", "2", "--ignore-eos", "--json"]
    assert main(["bench", "compare", *flags, "--", *engine, "--kv-cache-memory", "4000000"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["baseline"] == "static"
    for mode, reports in document["runs"].items():
        assert [r["mode"] for r in reports] == [mode, mode]
        assert [r["total_output_tokens"] for r in reports] == [31, 31]
        assert reports[0]["steps"] == reports[1]["steps"], "the same work, whatever the clock does"
    steps = document["ratios"]["continuous"]["output_tokens_per_step"]
    assert steps["least"] == steps["most"] > 1, "places that drained are filled again"


async def test_two_servers_get_the_same_prompts(server, capsys) -> None:
    other = server.url.replace("127.0.0.1", "localhost")
    flags = ["--url", server.url, "--url", other, "--repeats", "2", "--num-prompts", "2", "--request-rate", "inf"]
    command = ["bench", "compare", *flags, "--model", "other", "--max-output-tokens", "2", "--json"]
    assert await asyncio.to_thread(main, command) == 0
    assert list(json.loads(capsys.readouterr().out)["runs"]) == [server.url, other]
    prompts = [tuple(body["prompt"]) for body in server.bodies]
    assert len(prompts) == 8
    assert {body["model"] for body in server.bodies} == {"other"}
    assert len(set(prompts)) == 4, "each repetition its own, the same for both"


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--modes", "static"], "modes is static: must be two or more that differ"),
        (["--modes", "static,static"], "modes is static,static: must be two or more that differ"),
        (["--modes", "static,greedy"], "has 'greedy': must be of continuous, dynamic, static"),
        (["--repeats", "0"], "repeats is 0: must be at least 1"),
        (["--request-rate", "1,2"], "must be one value each, to compare"),
        (["--model", "m"], "model is m: must be left out without url; the engine's model follows `--`"),
        (["--", "--preemption", "auto"], "--preemption is 'auto': was removed: use 'swap'"),
        (["--url", "http://127.0.0.1:1"], "url is http://127.0.0.1:1: must be two or more that differ"),
    ],
)
def test_bad_flags_are_one_clear_message(capsys, flags, complaint) -> None:
    assert main(["bench", "compare", *flags]) == 2
    assert complaint in capsys.readouterr().err
