import json
import math

import pytest
from syrupy.assertion import SnapshotAssertion

from paternoster_load.reports.charts import load_page
from paternoster_load.reports.html import Chart, ChartMark, Page, Panel, Series, Table, render_page, write_page
from paternoster_load.reports.report import build_report, format_report, list_details, tokens_by_second
from paternoster_load.results import RequestEnd, RequestResult

VLLM_KEYS = {
    "date", "backend", "model_id", "num_prompts", "request_rate", "burstiness", "max_concurrency", "duration",
    "completed", "failed", "total_input_tokens", "total_output_tokens", "request_throughput", "output_throughput",
    "total_token_throughput", "max_output_tokens_per_s", "max_concurrent_requests",
    *(f"{s}_{m}_ms" for s in ("mean", "median", "std", "p99") for m in ("ttft", "tpot", "itl", "e2el")),
}  # fmt: skip
SETTINGS = {
    "date": "20260102-030405",
    "backend": "openai",
    "base_url": "http://127.0.0.1:8000",
    "model_id": "tiny",
    "num_prompts": 4,
    "request_rate": 2.0,
    "burstiness": 1.0,
    "max_concurrency": 8,
}
RESULTS = [
    RequestResult(0, 100.0, 10, RequestEnd.COMPLETED, "", 200, 3, 0.25, [0.5, 0.5], 1.25),
    RequestResult(1, 100.5, 20, RequestEnd.COMPLETED, "", 200, 2, 0.75, [0.25], 1.0),
    RequestResult(2, 103.0, 30, RequestEnd.COMPLETED, "", 200, 1, 0.125, [], 0.125),
    RequestResult(3, 103.5, 40, RequestEnd.REFUSED, "queue is full", 503, 0, None, [], 0.01),
]


@pytest.fixture
def report():
    return build_report(RESULTS, duration=4.0, settings=SETTINGS)


def test_every_key_of_vllm_is_there(report):
    assert set(report) >= VLLM_KEYS
    assert json.loads(json.dumps(report)) == report


def test_the_numbers_are_vllms(report):
    assert (report["completed"], report["failed"], report["refused"], report["lost"]) == (3, 1, 1, 0)
    assert (report["total_input_tokens"], report["total_output_tokens"]) == (60, 6)
    assert (report["request_throughput"], report["output_throughput"]) == (0.75, 1.5)
    assert report["total_token_throughput"] == 16.5
    assert report["mean_ttft_ms"] == 375
    assert report["median_ttft_ms"] == 250
    assert report["std_ttft_ms"] == pytest.approx(math.sqrt(((125**2) + (375**2) + (250**2)) / 3))
    assert report["mean_tpot_ms"] == 375, "(1.25-0.25)/2 and (1.0-0.75)/1; a single token has no TPOT"
    assert report["p99_itl_ms"] == pytest.approx(500)
    assert report["median_e2el_ms"] == 1000
    assert report["errors"] == {"queue is full": 1}
    assert tokens_by_second(RESULTS) == {0: 2, 1: 3, 3: 1}
    assert (report["max_output_tokens_per_s"], report["max_concurrent_requests"]) == (3, 2)


def test_the_printed_block(report, snapshot: SnapshotAssertion):
    assert format_report(report) == snapshot


def test_a_run_of_which_nothing_came():
    report = build_report([], duration=0.0, settings=SETTINGS)
    assert report["request_throughput"] == 0
    assert report["p99_ttft_ms"] == 0
    assert "Successful requests:" in format_report(report)


def test_detail_has_one_entry_for_each_request():
    assert {len(values) for values in list_details(RESULTS).values()} == {4}
    assert list_details(RESULTS)["itls"][0] == [0.5, 0.5]


def test_the_load_page_carries_its_series_and_its_own_script(report):
    html = render_page(load_page(report, RESULTS))
    for name in ("Output tokens arriving", "Requests in flight", "time to first token", "end to end", "queue is full"):
        assert name in html
    assert "Plotly.newPlot" in html
    _, body = html.split("</script>", maxsplit=1)
    assert "://" not in body.replace("http://127.0.0.1:8000", "")


def test_marks_series_and_tables_reach_the_page_escaped(tmp_path):
    page = Page(
        "A <title>",
        "sub",
        headline=[("label", "42")],
        charts=[
            Chart(
                "Fleet",
                [
                    Panel("Replicas", [Series("ready", [0, 5], [1, 2], "hv")]),
                    Panel("Cap", [Series("cap", [0, 5], [16, 12])], "seqs"),
                ],
                marks=[ChartMark(5.0, "replicas 1->2: demand <118>", "up")],
            )
        ],
        tables=[Table("Decisions", ["t", "why"], [["5.0", "a < b"]])],
    )
    write_page(tmp_path / "new" / "page.html", page)
    html = (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
    assert "<h1>A &lt;title&gt;</h1>" in html
    assert "<td>a &lt; b</td>" in html
    assert "Cap (seqs)" in html
    assert '"shape":"hv"' in html
    assert "<118>" not in html
