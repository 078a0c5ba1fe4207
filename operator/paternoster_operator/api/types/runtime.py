"""Which engine a fleet runs, and what is the operator's of its flags and environment."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from paternoster_operator.api.types.fields import Document
from paternoster_operator.engines.adapter import Actuator, RuntimeType
from paternoster_operator.engines.kinds import KINDS

Argument = Annotated[str, Field(max_length=1024)]
OWNED_ENV = ("PYTHONPATH", "VLLM_PLUGINS", "VLLM_API_KEY")
"""By which the plugin is found, turned off, or locked out."""
_OWNED_PREFIX = "PATERNOSTER_"


class EnvVar(Document):
    """A variable of the engine's environment."""

    name: str = Field(min_length=1, max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    value: str = Field(default="", max_length=4096)


class Runtime(Document):
    """The engine: this project's own, vLLM with the operator's plugin, SGLang, or a server of the OpenAI API."""

    type: RuntimeType = RuntimeType.PATERNOSTER
    """Paternoster, VLLM, SGLang or OpenAI; the others refuse fields that their engine cannot honour."""
    image: Annotated[str | None, Field(min_length=1, max_length=512)] = None
    """Container image with the engine, for another type than Paternoster; paternoster up needs command alone."""
    command: list[Argument] = Field(default=[], max_length=8)
    """Program with its first arguments; when empty, the engine's own, for type OpenAI the image's."""
    args: list[Argument] = Field(default=[], max_length=64)
    """Flags of the engine, as they are. The operator refuses those that a field sets; for type OpenAI they name the
    operator's settings, such as $(PATERNOSTER_PORT)."""
    env: list[EnvVar] = Field(default=[], max_length=64)
    """Further environment of the engine."""
    upstream_model: Annotated[str | None, Field(min_length=1, max_length=1024, pattern="^[ -~]+$")] = None
    """The model's name at a server of type OpenAI that takes no other, such as $(PATERNOSTER_MODEL), the path of its
    file or folder. Gateways put it into requests, and the served name into answers."""

    @property
    def is_foreign(self) -> bool:
        """Whether the engine is not this project's own."""
        return self.type is not RuntimeType.PATERNOSTER

    @property
    def has_plugin(self) -> bool:
        """Whether the operator's plugin moves the engine's limits."""
        return KINDS[self.type].actuator is Actuator.PLUGIN

    @model_validator(mode="after")
    def _check_owned(self) -> Self:
        # Names of one hyphen before the engine's own program are another program's: ``nice -n 9 vllm serve``.
        command = [word for word in self.command if word.startswith("--") or not word.startswith("-")]
        faults = KINDS[self.type].find_owned_flags([*command, *self.args])
        names = [variable.name for variable in self.env]
        faults += [
            f"env must not have {name}: the operator sets it"
            for name in names
            if name in OWNED_ENV or name.startswith(_OWNED_PREFIX)
        ]
        faults += [f"env must have {name} once" for name in sorted(set(names)) if names.count(name) > 1]
        if faults:
            raise ValueError("; ".join(faults))
        return self
