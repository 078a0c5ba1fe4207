"""llama.cpp's ``/metrics``, recorded from a real server, as ``/stats``; and what is none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paternoster_contract.admin import LiveConfigPatch
from paternoster_contract.stats import Unreported
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.engines.adapter import StatsUnavailable
from paternoster_operator.engines.answers import MAX_SAMPLES
from paternoster_operator.engines.openai_server import LLAMA_CPP, OpenAiAdapter
from paternoster_operator.report.engine_facts import complete_stats
from paternoster_operator.report.gateway_cap import GatewayCap

RECORDED = (Path(__file__).parent / "recorded/llama-cpp-b11434-metrics.txt").read_bytes()
"""Metrics of six requests for 48 tokens each at four slots, four of which had ended."""


def parse(text: bytes = RECORDED) -> Any:
    return OpenAiAdapter().parse_stats([text], 5.0)


def test_what_llama_cpp_reports_is_read() -> None:
    stats = parse()
    assert (stats.running, stats.waiting, stats.time) == (2, 0, 5.0)
    assert (stats.prompt_tokens_total, stats.cached_prompt_tokens_total) == (38 + 16, 16)
    assert (stats.generation_tokens_total, stats.computed_tokens_total) == (192, 38 + 192)
    assert (stats.inter_token_seconds_total, stats.inter_token_count_total) == (31.5186, 192)


def test_what_it_does_not_report_is_named() -> None:
    assert set(parse().unreported) == {*Unreported}


def test_an_older_version_without_cached_tokens_is_read() -> None:
    older = b"\n".join(line for line in RECORDED.splitlines() if b"cached" not in line)
    assert (parse(older).prompt_tokens_total, parse(older).cached_prompt_tokens_total) == (38, 0)


@pytest.mark.parametrize("name", LLAMA_CPP.values())
def test_a_missing_name_is_a_fault_with_that_name(name: str) -> None:
    without = b"\n".join(line for line in RECORDED.splitlines() if not line.startswith(name.encode()))
    with pytest.raises(StatsUnavailable, match=f"has no {name}: it must be llama.cpp's"):
        parse(without)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"", "it must be llama.cpp's"),
        (b"\xff\xfe", "it must be llama.cpp's"),
        (RECORDED.replace(b"predicted_total 192", b"predicted_total NaN"), "is nan: must be a number"),
        (RECORDED.replace(b"predicted_total 192", b"predicted_total -1"), "is -1: must be a number"),
        (RECORDED.replace(b"predicted_total 192", b"predicted_total +Inf"), "is inf: must be a number"),
        (RECORDED.replace(b"predicted_total 192", b"predicted_total 1e300"), "is 1e\\+300: must be a number from 0"),
        (RECORDED.replace(b"predicted_total 192", b"predicted_total many"), "cannot be parsed"),
        (RECORDED + b"llamacpp:requests_deferred 1\n" * MAX_SAMPLES, "at most"),
    ],
)
def test_what_is_no_number_of_a_server_is_a_fault(text: bytes, fault: str) -> None:
    with pytest.raises(StatsUnavailable, match=fault):
        parse(text)


def test_no_call_moves_its_limits() -> None:
    assert OpenAiAdapter().limits_call(LiveConfigPatch(live_cap=3)) is None


def test_the_operator_adds_instance_and_limits(resource: Callable[..., LLMDeployment]) -> None:
    fleet = resource(engine={"maxNumSeqs": 8})
    stats = complete_stats(parse(), 2, fleet)
    assert (stats.instance, stats.capacity, stats.live_cap) == ("start 2", 8, 8)
    assert Unreported.LIMITS not in stats.unreported
    fleet.status = {"gatewayCap": GatewayCap(3, "why").to_status()}
    assert complete_stats(parse(), 2, fleet).live_cap == 3


def test_an_engine_that_reports_all_is_left_as_it_is(resource: Callable[..., LLMDeployment]) -> None:
    own = parse().model_copy(update={"instance": "a", "unreported": ()})
    assert complete_stats(own, 2, resource()) is own
