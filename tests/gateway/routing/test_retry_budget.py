"""Retries of a fleet stay within what its requests allow."""

from hypothesis import given
from hypothesis import strategies as st

from paternoster_gateway.routing.retry_budget import RATIO, RESERVE, WINDOW_SECONDS, RetryBudget, RetryBudgets

SECOND = st.tuples(st.integers(0, 400), st.integers(0, 400))
"""Requests and attempts to retry, in one second."""


@given(st.lists(SECOND, min_size=1, max_size=40))
def test_in_no_window_more_retries_than_the_reserve_and_a_share_of_the_requests(seconds: list[tuple[int, int]]) -> None:
    budget = RetryBudget()
    granted = []
    for second, (requests, retries) in enumerate(seconds):
        now = second + 0.5
        for _ in range(requests):
            budget.count_request(now)
        granted.append(sum(budget.withdraw_retry(now) for _ in range(retries)))
    for end in range(1, len(seconds) + 1):
        window = slice(max(0, end - WINDOW_SECONDS), end)
        requests = sum(each for each, _ in seconds[window])
        # What was granted early in the window may rest on requests of before it.
        before = sum(each for each, _ in seconds[max(0, end - 2 * WINDOW_SECONDS + 1) : window.start])
        assert sum(granted[window]) <= RESERVE + RATIO * (requests + before)


@given(st.lists(SECOND, min_size=1, max_size=40))
def test_a_retry_is_granted_whenever_there_is_room(seconds: list[tuple[int, int]]) -> None:
    budget = RetryBudget()
    granted: list[int] = []
    for second, (requests, retries) in enumerate(seconds):
        now = float(second)
        granted.append(0)
        for _ in range(requests):
            budget.count_request(now)
        for _ in range(retries):
            last = slice(max(0, second - WINDOW_SECONDS + 1), second + 1)
            room = RESERVE + RATIO * sum(each for each, _ in seconds[last]) - sum(granted[last])
            assert budget.withdraw_retry(now) == (room >= 1)
            granted[-1] += room >= 1


def test_each_fleet_has_a_budget_that_ends_with_it() -> None:
    budgets = RetryBudgets()
    ones = budgets.get_budget("m", "one")
    assert sum(ones.withdraw_retry(0.0) for _ in range(2 * RESERVE)) == RESERVE
    assert budgets.get_budget("m", "one") is ones
    assert budgets.get_budget("m", "two").withdraw_retry(0.0), "another fleet that took over the name"
    budgets.retain_only([("m", "two")])
    assert budgets.get_budget("m", "one") is not ones
