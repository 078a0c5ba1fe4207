"""Kubernetes resource quantities as numbers."""

import re
from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

QUANTITY = r"^[0-9]+(\.[0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"
"""Pattern of the quantities that a manifest's own fields may have."""
_INT_AS_TEXT = BeforeValidator(lambda value: str(value) if type(value) is int else value)
Quantity = Annotated[
    str,
    Field(pattern=QUANTITY, max_length=32),
    _INT_AS_TEXT,
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": QUANTITY, "maxLength": 32}),
]
"""A Kubernetes resource quantity, such as 500m, 2 or 512Mi."""
_BYTES = r"^[1-9][0-9]*(k|M|G|T|Ki|Mi|Gi|Ti)?$"
ByteQuantity = Annotated[
    str,
    Field(pattern=_BYTES, max_length=32),
    _INT_AS_TEXT,
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": _BYTES, "maxLength": 32}),
]
"""A quantity of at least one byte, such as 512Mi."""
_ANY = re.compile(
    r"([+-]?(?:[0-9]{1,64}(?:\.[0-9]{0,64})?|\.[0-9]{1,64}))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,3}))?"
)
_SUFFIXES = {
    "": Fraction(1),
    **{suffix: Fraction(10) ** (3 * power) for power, suffix in enumerate("num", start=-3)},
    **{suffix: Fraction(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(2) ** (10 * power) for power, suffix in enumerate("KMGTPE", start=1)},
}


def parse_quantity(text: str) -> Fraction:
    """The exact value of any quantity that Kubernetes writes: ``512Mi`` is 536870912, ``500m`` is 1/2.

    Raises ``ValueError`` for other texts, and for exponents of more than three digits, whose numbers fill the memory.
    """
    if (found := _ANY.fullmatch(text)) is None:
        raise ValueError(f"{text[:60]!r} is no quantity, such as 500m, 2 or 512Mi")
    number, suffix, exponent = found.groups()
    return Fraction(number) * _SUFFIXES[suffix or ""] * Fraction(10) ** int(exponent or 0)
