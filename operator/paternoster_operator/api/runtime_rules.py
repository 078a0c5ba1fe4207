"""Rules on what a runtime cannot honour, in CEL, made of each adapter's refusals."""

import json
from typing import Any

from paternoster_operator.api.rule import Rule
from paternoster_operator.engines.adapter import EngineKind, Refusal
from paternoster_operator.engines.kinds import KINDS

_OURS = "self.engine.runtime.type == 'Paternoster'"
_KEYED = "(has(self.security.apiKeys) && size(self.security.apiKeys) > 0) || has(self.security.apiKeySecretRef)"


def _refusal_rule(kind: EngineKind, refusal: Refusal) -> Rule:
    allowed = refusal.allowed if isinstance(refusal.allowed, list) and refusal.allowed else [refusal.allowed]
    conditions = [_write_condition(f"self.{refusal.field}", value) for value in allowed]
    values = " or ".join("unset" if value in (None, []) else json.dumps(value).strip('"') for value in allowed)
    return Rule(
        f"self.engine.runtime.type != '{kind.type}' || {' || '.join(conditions)}",
        f"{refusal.field} must be {values} with engine.runtime.type {kind.type}: {refusal.reason}",
        refusal.field,
    )


def _write_condition(path: str, value: Any) -> str:
    if value is None:
        return f"!has({path})"
    if value == []:
        return f"!has({path}) || size({path}) == 0"
    literal = f"'{value}'" if isinstance(value, str) else json.dumps(value)
    return f"(has({path}) && {path} == {literal})"


RUNTIME_RULES: tuple[Rule, ...] = (
    Rule(
        f"!({_OURS}) || (!has(self.engine.runtime.image) && size(self.engine.runtime.command) == 0 && "
        "size(self.engine.runtime.args) == 0 && size(self.engine.runtime.env) == 0)",
        "engine.runtime must have no image, command, args and env with type Paternoster: use engine.image, "
        "engine.extraArgs and podTemplate",
        "engine.runtime.type",
    ),
    Rule(
        f"{_OURS} || has(self.engine.runtime.image) || size(self.engine.runtime.command) > 0 || has(self.targetRef)",
        "engine.runtime.image must name an image with the engine, or engine.runtime.command its program",
        "engine.runtime.image",
    ),
    Rule(
        "self.engine.runtime.type == 'OpenAI' || !has(self.engine.runtime.upstreamModel)",
        "engine.runtime.upstreamModel must be unset with another engine.runtime.type than OpenAI: the operator starts "
        "such an engine with the served names",
        "engine.runtime.upstreamModel",
    ),
    Rule(
        f"{_OURS} || !self.model.source.startsWith('package://')",
        "model.source must be another than package:// with another engine.runtime.type than Paternoster: a package is "
        "found by our own engine alone",
        "model.source",
    ),
    Rule(
        f"{_OURS} || !has(self.model.cache) || has(self.model.cache.emptyDir)",
        "model.cache must be emptyDir with another engine.runtime.type than Paternoster: such an engine does not lock "
        "the model that it runs, and another pod could evict it from a cache that is full",
        "model.cache",
    ),
    Rule(
        f"{_OURS} || self.engine.cacheIsolation == 'Fleet' || !self.engine.prefixCache || !({_KEYED})",
        "engine.cacheIsolation must be Fleet with another engine.runtime.type than Paternoster where clients have "
        "keys, or engine.prefixCache false: such an engine serves all clients from one prefix cache",
        "engine.cacheIsolation",
    ),
    *(_refusal_rule(kind, refusal) for kind in KINDS.values() for refusal in kind.refusals),
)
"""Rules on ``spec.engine.runtime``."""
