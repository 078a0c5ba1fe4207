import pytest

from clients.loglikelihoods import PAIRS, TOLERANCE, Loglikelihood, largest_difference

THEIRS: list[Loglikelihood] = [(-0.5, True), (-4.0, False)]


def test_sums_as_near_as_the_tolerance_are_the_same() -> None:
    near: list[Loglikelihood] = [(-0.5 + TOLERANCE / 2, True), (-4.0, False)]
    assert largest_difference(near, THEIRS) == pytest.approx(TOLERANCE / 2)


@pytest.mark.parametrize("wrong", [[(-0.6, True), (-4.0, False)], [(-0.5, False), (-4.0, False)]])
def test_other_sums_and_other_most_likely_tokens_are_a_fault(wrong: list[Loglikelihood]) -> None:
    with pytest.raises(RuntimeError, match="transformers"):
        largest_difference(wrong, THEIRS)


def test_a_sum_that_is_missing_is_a_fault() -> None:
    with pytest.raises(ValueError, match="argument 2"):
        largest_difference(THEIRS[:1], THEIRS)


def test_there_are_likely_and_unlikely_continuations_of_one_text() -> None:
    contexts = [context for context, _ in PAIRS]
    assert len(set(contexts)) < len(contexts)
