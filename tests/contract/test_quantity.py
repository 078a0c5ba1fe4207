"""Quantities that Kubernetes writes are read exactly, and none takes more than a moment."""

from fractions import Fraction

import pytest

from paternoster_contract.quantity import parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", Fraction(1, 2)), ("2", 2), ("1.5Gi", 3 * 2**29), ("512Mi", 2**29), ("1Ei", 2**60), ("3P", 3 * 10**15),
        ("100u", Fraction(1, 10**4)), ("1n", Fraction(1, 10**9)), ("1e3", 1000), ("2E-3", Fraction(2, 1000)),
        ("-1.5k", -1500), (".5", Fraction(1, 2)), ("5.", 5),
    ],
)  # fmt: skip
def test_a_quantity_has_its_exact_value(text: str, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1gi", "0x10", "1_000", "1e99999999", "1E-99999999", "9" * 65, "1/3"]
)
def test_another_text_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        parse_quantity(text)
