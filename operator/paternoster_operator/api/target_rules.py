"""Rules on a fleet that is only observed, in CEL."""

from paternoster_operator.api.rule import Rule

_NONE = "!has(self.targetRef)"


def _is_advisory(path: str) -> str:
    return f"(!has({path}) || {path} == 'Advisory')"


TARGET_RULES: tuple[Rule, ...] = (
    Rule(
        f"{_NONE} || self.engine.runtime.type != 'Paternoster'",
        "targetRef must be unset with engine.runtime.type Paternoster: that engine reports to the operator of its own "
        "fleet alone",
        "targetRef",
    ),
    Rule(
        f"{_NONE} || (has(self.autoscaling) && self.autoscaling.mode == 'Advisory')",
        "autoscaling.mode must be Advisory with targetRef: the operator scales no Deployment that it did not make",
        "autoscaling.mode",
    ),
    Rule(
        f"{_NONE} || {_is_advisory('self.concurrency.mode')}",
        "concurrency.mode must be Advisory or unset with targetRef: the operator steers no engine of such a Deployment",
        "concurrency.mode",
    ),
    Rule(
        f"{_NONE} || !has(self.concurrency.tokenBudget) || {_is_advisory('self.concurrency.tokenBudget.mode')}",
        "concurrency.tokenBudget.mode must be Advisory or unset with targetRef: the operator steers no engine of such "
        "a Deployment",
        "concurrency.tokenBudget.mode",
    ),
)
"""Rules on ``spec.targetRef``."""
