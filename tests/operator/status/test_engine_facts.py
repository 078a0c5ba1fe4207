"""What the engines of a fleet have in common: the least of each, so that whatever is promised holds at all of them."""

from typing import Any

from paternoster_contract.stats import EngineState, EngineStats
from paternoster_operator.api.types.status import EngineStatus
from paternoster_operator.engines.adapter import Actuator, RuntimeType
from paternoster_operator.engines.kinds import KINDS
from paternoster_operator.report.engine_facts import EngineFacts, describe_engine

COUNTERS = [name for name in EngineStats.model_fields if name.endswith("_total")]


def report(**values: Any) -> EngineStats:
    fields = dict.fromkeys(COUNTERS, 0) | {
        "instance": "a", "model": "m", "state": EngineState.READY, "started_at": 0, "time": 0,
        "last_tick_age_seconds": 0, "capacity": 16, "live_cap": 16, "running": 0, "waiting": 0, "kv_block_size": 16,
        "kv_blocks": 100, "kv_blocks_used": 0, "kv_blocks_cached": 0, "kv_projected_peak": 0, "max_model_len": 4096,
        "max_batched_tokens": 512, "token_budget": 512,
    }  # fmt: skip
    return EngineStats.model_validate(fields | values)


def test_engines_that_differ_have_the_least_in_common() -> None:
    reports = [report(), report(capacity=8, live_cap=6, kv_blocks=50, max_model_len=2048, token_budget=128)]
    facts = EngineFacts.from_reports(reports)
    assert (facts.capacity, facts.lowest_live_cap, facts.highest_live_cap) == (8, 6, 16)
    assert (facts.kv_blocks, facts.max_model_len) == (50, 2048)
    assert (facts.token_capacity, facts.token_budget) == (512, 128)


def test_an_engine_of_an_earlier_release_has_no_token_budget() -> None:
    assert EngineFacts.from_reports([report(), report(max_batched_tokens=0, token_budget=0)]).token_capacity == 0


def test_without_reports_everything_is_zero() -> None:
    assert EngineFacts.from_reports([]) == EngineFacts()


def test_the_status_names_the_engine_and_what_can_be_done_with_it() -> None:
    assert describe_engine(KINDS[RuntimeType.VLLM], "0.32.0", Actuator.PLUGIN) == {
        "type": "VLLM", "version": "0.32.0", "actuator": "Plugin",
        "capabilities": [
            "liveCap", "noContinuationOfMedia", "noContinuationOfPenaltiesOfAnswers", "noContinuationOfServerTools",
            "noContinuationOfWholeAnswers", "queueLimit", "stepCosts", "textChains", "tokenBudget",
            "validContinuation",
        ],
    }  # fmt: skip
    own = describe_engine(KINDS[RuntimeType.PATERNOSTER], "", Actuator.ADMIN_API)
    assert own == {
        "type": "Paternoster", "version": "", "actuator": "AdminAPI",
        "capabilities": [
            "drain", "exactContinuation", "liveCap", "queueLimit", "stepCosts", "textChains", "tokenBudget",
        ],
    }  # fmt: skip
    for described in (own, describe_engine(KINDS[RuntimeType.VLLM], "0.32.0", Actuator.PLUGIN)):
        stored = EngineStatus.model_validate(described).model_dump(by_alias=True)
        assert stored == described, "the API server adds nothing, or each look would write the status again"
