"""Goodput: which requests count, and what cannot be a limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_load.reports.goodput import Goodput
from paternoster_load.reports.report import build_report, format_report
from paternoster_load.results import RequestEnd, RequestResult


def result(ttft: float = 0.125, itls: tuple[float, ...] = (0.0625, 0.1875), outcome: RequestEnd = RequestEnd.COMPLETED):
    return RequestResult(0, 0.0, 10, outcome, "", 200, 1 + len(itls), ttft, list(itls), ttft + sum(itls))


@pytest.mark.parametrize(
    ("limits", "met"),
    [
        (["ttft:125"], True),
        (["ttft:124"], False),
        (["itl:125"], True),
        (["itl:124"], False),
        (["tpot:125"], True),
        (["e2el:374"], False),
        (["ttft:125", "itl:125", "e2el:375"], True),
        (["ttft:125", "itl:124"], False),
    ],
)
def test_every_limit_is_to_be_met(limits, met) -> None:
    assert Goodput.parse(limits).is_met(result()) is met


def test_an_answer_of_one_token_has_no_gaps_to_be_late_in() -> None:
    assert Goodput.parse(["itl:1", "tpot:1"]).is_met(result(itls=()))


@given(st.sampled_from(RequestEnd))
def test_only_completed_requests_are_good(outcome: RequestEnd) -> None:
    assert Goodput.parse(["ttft:1e9"]).is_met(result(outcome=outcome)) is (outcome is RequestEnd.COMPLETED)


def test_the_report_has_requests_per_second_within_the_limits() -> None:
    results = [result(), result(ttft=5.0), result(outcome=RequestEnd.REFUSED)]
    report = build_report(results, duration=2.0, settings={}, goodput=Goodput.parse(["ttft:1000"]))
    assert report["request_goodput"] == 0.5
    assert report["goodput_limits_ms"] == {"ttft": 1000.0}
    assert "Request goodput (req/s):" in format_report(report)
    assert "request_goodput" not in build_report(results, duration=2.0, settings={})


@pytest.mark.parametrize("pair", ["ttft", "ttft:", "ttft:-1", "ttft:0", "ttft:inf", "latency:5", ":5", "ttft:soon"])
def test_what_cannot_be_a_limit_is_named(pair: str) -> None:
    with pytest.raises(ValueError, match="goodput is '"):
        Goodput.parse([pair])
