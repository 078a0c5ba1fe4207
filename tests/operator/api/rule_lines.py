"""Which rule a line of refusal is of."""

from paternoster_operator.api.rule import Rule
from paternoster_operator.api.rules import SPEC_RULES


def rule_of(line: str) -> Rule:
    """The one that says so, after the field and its value; the value may have colons, too.

    Raises ``ValueError`` for a line that begins the messages of several, and ``StopIteration`` for one of none.
    """
    parts = line.split(": ")
    tails = [": ".join(parts[number:]) for number in range(2, len(parts))]
    found = ([rule for rule in SPEC_RULES if tail and rule.message.startswith(tail)] for tail in tails)
    (rule,) = next(filter(None, found))
    return rule
