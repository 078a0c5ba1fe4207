"""What counts of a watch that fails: for its namespace, for others, and how often it is logged."""

import logging

import pytest

from paternoster_operator.cluster.watch_states import (
    EVERY_NAMESPACE,
    GRACE_SECONDS,
    LOG_SECONDS,
    MOST_REFUSALS,
    Watch,
    WatchStates,
)

PODS, SERVICES, ELSEWHERE = Watch("Pod", "a"), Watch("Service", "a"), Watch("Pod", "b")


class Story:
    """States on a clock of their own, and what they reported."""

    def __init__(self, *watches: Watch) -> None:
        self.now = 1000.0
        self.seen: list[tuple[Watch, bool]] = []
        self.states = WatchStates(lambda watch, works: self.seen.append((watch, works)), lambda: self.now)
        for watch in watches:
            self.states.add(watch)

    def work(self, *watches: Watch, objects: int = 1) -> None:
        for watch in watches:
            self.states.record_list(watch, objects)
            self.states.record_answer(watch)

    def fault(self, namespace: str) -> str | None:
        found = self.states.find_fault(namespace)
        return None if found is None else found.message


def test_a_namespace_is_out_of_date_after_a_while_and_no_other_is() -> None:
    story = Story(PODS, SERVICES, ELSEWHERE)
    story.work(PODS, SERVICES, ELSEWHERE)
    assert not story.states.record_failure(PODS, "HTTP 403: no", refused=True)
    assert story.fault("a") is None
    story.now += GRACE_SECONDS
    story.states.record_failure(PODS, "HTTP 403: still no", refused=True)
    assert story.fault("a") == "the operator cannot watch Pod in a: HTTP 403: still no"
    assert story.fault("b") is None
    story.work(PODS)
    assert story.fault("a") is None
    assert story.seen[-3:] == [(PODS, False), (PODS, False), (PODS, True)]


def test_a_watch_of_every_namespace_concerns_each() -> None:
    watch = Watch("Pod", EVERY_NAMESPACE)
    story = Story(watch)
    assert story.fault("a") == "the operator cannot watch Pod in every namespace: not answered yet"
    for _ in range(10 * MOST_REFUSALS):
        assert not story.states.record_failure(watch, "HTTP 403: no", refused=True), "there is nothing to begin with"
    story.work(watch)
    assert story.fault("a") is None


def test_what_was_never_listed_is_told_from_what_was() -> None:
    story = Story(PODS, SERVICES)
    story.work(SERVICES)
    story.now += GRACE_SECONDS
    story.states.record_failure(SERVICES, "x", refused=False)
    story.now += GRACE_SECONDS
    found = story.states.find_fault("a")
    assert found is not None
    assert (found.listed, "Pod" in found.message) == (False, True), "the graver one comes first"
    story.work(PODS)
    found = story.states.find_fault("a")
    assert found is not None
    assert (found.listed, "Service" in found.message) == (True, True)


def test_others_wait_for_all_but_a_namespace_that_is_refused_while_they_are_read() -> None:
    story = Story(PODS, ELSEWHERE)
    for _ in range(2 * MOST_REFUSALS):
        assert not story.states.record_failure(PODS, "HTTP 404", refused=True), "nothing is read at all"
    story.work(ELSEWHERE)
    for _ in range(2 * MOST_REFUSALS):
        assert not story.states.record_failure(PODS, "HTTP 503", refused=False), "this may pass"
    given_up = [story.states.record_failure(PODS, "HTTP 404", refused=True) for _ in range(MOST_REFUSALS)]
    assert given_up == [False] * (MOST_REFUSALS - 1) + [True]
    assert story.states.is_complete(["Pod"], 2)
    found = story.states.find_fault("a")
    assert found is not None
    assert not found.listed
    story.work(PODS, objects=3)
    assert story.fault("a") is None
    assert story.states.count_objects("Pod") == 4


def test_it_is_complete_once_every_kind_is_listed_in_every_namespace() -> None:
    story = Story(PODS)
    assert not story.states.is_complete(["Pod"], 1)
    story.work(PODS, objects=0)
    assert story.states.is_complete(["Pod"], 1)
    assert not story.states.is_complete(["Pod", "Service"], 1)
    assert not story.states.is_complete(["Pod"], 2)
    assert story.states.count_objects("Pod") == 0


def test_a_watch_that_goes_on_failing_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    story = Story(PODS)
    with caplog.at_level(logging.WARNING):
        for second in range(int(3 * LOG_SECONDS)):
            story.now = 1000.0 + second
            story.states.record_failure(PODS, f"fault {second}", refused=False)
    assert len(caplog.records) == 3
