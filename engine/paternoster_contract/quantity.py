"""Kubernetes resource quantities as numbers."""

from fractions import Fraction

QUANTITY = r"^[0-9]+(\.[0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"
"""Those that are understood here."""
_SUFFIXES = {
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
}


def quantity(text: str) -> Fraction:
    """The exact value of a quantity that matches :data:`QUANTITY`: ``512Mi`` is 536870912, ``500m`` is 1/2."""
    number = text.rstrip("".join(_SUFFIXES))
    return Fraction(number) * _SUFFIXES.get(text[len(number) :], Fraction(1))
