"""Parts of a pod's spec that a resource may set: where its engines run; no logic."""

from typing import Literal

from pydantic import Field

from paternoster_operator.api.types.fields import INT32, INT64, Document, SubdomainName


class Toleration(Document):
    """As in a pod's spec."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = Field(default=None, ge=0, json_schema_extra=INT64)


class TopologySpread(Document):
    """As in a pod's spec; the label selector is always that of the engines."""

    max_skew: int = Field(default=1, ge=1, le=1000, json_schema_extra=INT32)
    topology_key: str = Field(min_length=1, max_length=316)
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = "ScheduleAnyway"


class SecretName(Document):
    """A Secret in the same namespace."""

    name: SubdomainName
