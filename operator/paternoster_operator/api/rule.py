"""One rule between fields, in CEL.

Language: the Common Expression Language, as Kubernetes' ``x-kubernetes-validations`` runs it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """An expression that must hold, and the message when it does not."""

    expression: str
    message: str
    field: str
    """Where the fault lies, below spec; an item of a list by its name, as in containers[engine]."""
