"""What a resource adds to the pods of its engines; no logic."""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from paternoster_operator.api.pod.fields import MAX_ITEMS, build_schema
from paternoster_operator.api.types.fields import Document

LabelValue = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]


class PodTemplateMetadata(Document):
    """Labels and annotations of each pod."""

    labels: dict[str, LabelValue] = Field(default_factory=dict, max_length=MAX_ITEMS)
    annotations: dict[str, str] = Field(default_factory=dict, max_length=MAX_ITEMS)


class PodTemplate(Document):
    """A strategic merge over the pods of the engines.

    Containers, volumes, env and the like merge by their names, mounts by their paths; tolerations are appended. The
    container ``engine`` is the engine's; others run beside it. Null removes a field of an object such as
    ``securityContext``.
    """

    metadata: PodTemplateMetadata = Field(default_factory=PodTemplateMetadata)
    spec: Annotated[dict[str, Any], WithJsonSchema(build_schema())] = Field(default_factory=dict)
    """A pod's spec. The operator checks what is inside of its objects, and reports InvalidSpec."""
