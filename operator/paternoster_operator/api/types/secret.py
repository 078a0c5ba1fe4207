"""The part of a Secret that is read where no API server has it; no logic."""

from typing import Literal

from pydantic import Base64Bytes, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from paternoster_operator.api.types.fields import SubdomainName


class SecretMetadata(BaseModel):
    """Which one it is."""

    model_config = ConfigDict(extra="ignore")

    name: SubdomainName
    namespace: SubdomainName = "default"


class Secret(BaseModel):
    """As in the Kubernetes API, core/v1."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")

    api_version: Literal["v1"]
    kind: Literal["Secret"]
    metadata: SecretMetadata
    data: dict[str, Base64Bytes] = Field(default_factory=dict)
    string_data: dict[str, str] = Field(default_factory=dict)
