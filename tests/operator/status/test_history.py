"""What the history reports of decisions: bounded, and never the same again."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paternoster_operator.api.types.status import DecisionRecord, LLMDeploymentStatus
from paternoster_operator.autoscaling.decision import LIVE_CAP, REPLICAS, TOKEN_BUDGET, Decision, LoopDecision, Reason
from paternoster_operator.report.history import MAX_DECISIONS, History

NOW = "2026-01-01T00:00:00Z"


def word(target: int, reason: Reason, *, loop: str = REPLICAS, applied: bool = True) -> LoopDecision:
    return LoopDecision(loop, 2, target, target, reason, "said", applied=applied)


def decision(*words: LoopDecision) -> Decision:
    return Decision({made.loop: made for made in words}, {REPLICAS: 2, LIVE_CAP: 8, TOKEN_BUDGET: 0})


class Recorder:
    """The history of a fleet from one decision to the next."""

    def __init__(self, records: Sequence[Mapping[str, Any]] = ()) -> None:
        self.history = History.from_status({"decisions": records})

    @property
    def records(self) -> list[Mapping[str, Any]]:
        return list(self.history.records)

    def add(self, decision: Decision, time: str) -> tuple[LoopDecision, ...]:
        self.history, recorded = self.history.add(decision, time)
        return recorded


def test_holding_for_the_same_reason_is_told_once() -> None:
    history = Recorder()
    hold = word(2, Reason.WITHIN_TOLERANCE)
    assert history.add(decision(hold), NOW) == (hold,)
    assert history.add(decision(hold), NOW) == ()
    assert history.add(decision(word(2, Reason.STABILIZING)), NOW)
    assert len(history.records) == 2


def test_a_change_is_told_each_time_and_holding_after_it_anew() -> None:
    history = Recorder()
    for _ in range(2):
        assert history.add(decision(word(3, Reason.DEMAND_ABOVE_TARGET)), NOW)
    assert history.add(decision(word(2, Reason.WITHIN_TOLERANCE)), NOW)
    assert [record["action"] for record in history.records] == ["Hold", "Up", "Up"]


def test_the_same_advice_is_told_once() -> None:
    history = Recorder()
    advice = word(3, Reason.DEMAND_ABOVE_TARGET, applied=False)
    assert history.add(decision(advice), NOW)
    assert not history.add(decision(advice), NOW)
    assert history.add(decision(word(4, Reason.DEMAND_ABOVE_TARGET, applied=False)), NOW)
    assert not history.add(decision(advice), NOW), "it goes no further than what was told"
    assert history.add(decision(word(4, Reason.DEMAND_ABOVE_TARGET)), NOW), "now it acts"
    assert history.add(decision(advice), NOW), "what acted last is no advice"


def test_one_loops_changes_do_not_make_the_others_silence_news() -> None:
    history = Recorder()
    hold = word(2, Reason.WITHIN_TOLERANCE)
    history.add(decision(hold), NOW)
    for target in range(3, 30):
        history.add(decision(word(target, Reason.HEADROOM_AVAILABLE, loop=LIVE_CAP)), NOW)
    assert {record["loop"] for record in history.records} == {LIVE_CAP}
    assert history.add(decision(hold), NOW) == ()


def test_a_restarted_operator_goes_on_where_the_status_ends() -> None:
    before = Recorder()
    before.add(decision(word(3, Reason.DEMAND_ABOVE_TARGET)), NOW)
    before.add(decision(word(2, Reason.WITHIN_TOLERANCE)), NOW)
    after = Recorder(before.records)
    assert after.add(decision(word(2, Reason.WITHIN_TOLERANCE)), NOW) == ()
    assert after.records == before.records


words = st.builds(
    word,
    st.integers(0, 4),
    st.sampled_from(Reason),
    loop=st.sampled_from([REPLICAS, LIVE_CAP]),
    applied=st.booleans(),
)


@given(st.lists(words, max_size=40))
def test_records_are_bounded_valid_and_only_changes_repeat(made: list[LoopDecision]) -> None:
    history = Recorder()
    for each in made:
        before = list(history.records)
        recorded = history.add(decision(each), NOW)
        assert history.records == [*({"time": NOW, **n.to_document()} for n in recorded), *before][:MAX_DECISIONS]
        again = history.add(decision(each), NOW)
        assert bool(again) == (each.applied and each.action != "Hold")
    for record in history.records:
        DecisionRecord.model_validate(record)


def test_records_of_an_earlier_version_are_still_served() -> None:
    """They name the live cap's loop Concurrency."""
    stored = {"time": NOW, **word(6, Reason.PREEMPTION_ABOVE_TARGET, loop="Concurrency").to_document()}
    history = Recorder([stored])
    history.add(decision(word(8, Reason.HEADROOM_AVAILABLE, loop=LIVE_CAP)), NOW)
    assert [record["loop"] for record in history.records] == [LIVE_CAP, "Concurrency"]
    LLMDeploymentStatus.model_validate({"decisions": history.records})
