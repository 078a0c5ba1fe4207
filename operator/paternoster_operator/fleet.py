"""State that the operator keeps of one LLMDeployment between two reconciles."""

from dataclasses import dataclass, field

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.carry_out.applied_children import AppliedChildren
from paternoster_operator.observe.observer import FleetReaders
from paternoster_operator.observed import Observed
from paternoster_operator.plan.plan import FleetMemory
from paternoster_operator.report.history import History
from paternoster_operator.report.startup import StartupTimes


@dataclass(frozen=True, slots=True)
class Fleet:
    """Replaced as a whole; each step of a reconcile has its own part, and all of it can be learnt again."""

    resource: LLMDeployment
    memory: FleetMemory = field(default_factory=FleetMemory)
    observed: Observed = field(default_factory=lambda: Observed(None, ()))
    """Observation of the last reconcile, with what that changed."""
    readers: FleetReaders = field(default_factory=FleetReaders)
    applied: AppliedChildren = field(default_factory=AppliedChildren)

    @classmethod
    def from_status(cls, resource: LLMDeployment) -> "Fleet":
        """With what an earlier operator wrote into the status."""
        status = resource.status
        readers = FleetReaders(StartupTimes.from_status(status))
        return cls(resource, FleetMemory(history=History.from_status(status)), readers=readers)
