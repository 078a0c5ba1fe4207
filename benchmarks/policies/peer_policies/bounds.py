"""How many replicas a policy may ask for."""

from dataclasses import dataclass

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec


@dataclass(frozen=True, slots=True)
class Bounds:
    """Fewest and most replicas, both included."""

    minimum: int
    maximum: int

    @classmethod
    def of(cls, spec: LLMDeploymentSpec) -> "Bounds":
        """Bounds of ``spec.autoscaling``.

        Raises:
            ValueError: the spec has no autoscaling, so there is nothing to decide.
        """
        if spec.autoscaling is None:
            raise ValueError("autoscaling is unset: a scaling policy needs autoscaling.minReplicas and maxReplicas")
        return cls(spec.autoscaling.min_replicas, spec.autoscaling.max_replicas)

    def clip(self, replicas: int) -> int:
        return max(self.minimum, min(self.maximum, replicas))
