"""Adapters (LoRA) of a fleet's model: each a model of its own to clients; no logic but the version."""

import hashlib
import json
from typing import Annotated

from pydantic import AfterValidator, Field

from paternoster_contract.access.identity import TENANT_PATTERN
from paternoster_contract.admin import ADAPTER_DIGEST
from paternoster_operator.api.types.fields import Document
from paternoster_operator.api.types.model import SOURCE_NAME, check_folder

_SOURCES = (
    r"file:///.+",
    rf"hf://{SOURCE_NAME}/{SOURCE_NAME}(@[^\s?#]+)?",
    rf"(s3|gs)://{SOURCE_NAME}(/[^\s?#]*)?",
    r"oci-(archive|layout):///[^\s?#]+(#[^\s#]*)?",
)


class ModelAdapter(Document):
    """An adapter (LoRA) of the model, which every engine loads while it runs."""

    name: str = Field(max_length=128, pattern=r"^[A-Za-z0-9._/:-]+$")
    """Name that clients use as a model's. The fleet claims it, as it does its aliases."""
    source: Annotated[str, Field(max_length=2048, pattern=f"^({'|'.join(_SOURCES)})$"), AfterValidator(check_folder)]
    """Folder that PEFT wrote, which each engine reads or fetches: file:///path in its image or on a volume of
    podTemplate; hf://org/name, with @revision; s3://bucket/prefix; gs://bucket/prefix; oci-archive:///path/image.tar
    and oci-layout:///path/folder, with #tag=...&path=..."""
    digest: str | None = Field(default=None, max_length=71, pattern=ADAPTER_DIGEST)
    """SHA-256 of its adapter_model.safetensors, sha256:... Engines load it anew when this or source changes."""
    keys: list[Annotated[str, Field(max_length=64, pattern=TENANT_PATTERN)]] | None = Field(
        default=None, min_length=1, max_length=64
    )
    """Tenants of security.apiKeys whose keys may use it; all others get the answer for an unknown model. When unset
    each key of the fleet may."""

    @property
    def version(self) -> str:
        """Changes with the files that are wanted."""
        return hashlib.sha256(json.dumps((self.source, self.digest)).encode()).hexdigest()[:16]
