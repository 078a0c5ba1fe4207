"""Rows of the table of engine settings: what a field of ``EngineArgs`` has beside its type, bounds, default and help.

From :class:`SpecField` the CRD's field is made, and what of a manifest an engine gets; from :class:`OtherEngines` the
arguments, variables and refusals of engines of other types, and the tables of docs/engines.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class SpecField:
    """The field of an ``LLMDeployment`` that says a setting."""

    path: str
    """Below spec; empty for what the operator alone sets."""
    description: str = ""
    """The setting's own help where empty."""
    annotation: Any = None
    """Type with bounds; the setting's own where None."""
    default: Any = ...
    """The setting's own where ``...``. A field that is None leaves the setting out."""
    to_setting: Callable[[Any], Any] = lambda value: value
    """The setting's value, of the field's."""
    by_hand: bool = False
    """Whether the types of the resource declare it, and ``desired/engine_args`` translates it."""


@dataclass(frozen=True, slots=True)
class Translation:
    """What an engine of another type makes of a setting: a flag, a variable, something else, or a refusal."""

    flag: str = ""
    """Its name without hyphens."""
    value: Callable[[Any], Any] = lambda value: value
    """The value of flag or variable, of the setting's; None for no flag."""
    always: bool = False
    """Whether the flag is written, too, where the setting has its default, in place of the engine's own default."""
    other_flags: tuple[str, ...] = ()
    """Further flags that set the same: ``engine.runtime.args`` may have none of them."""
    variable: str = ""
    """Of the container, for a manifest's own flags to name."""
    note: str = ""
    """What becomes of the setting, for docs."""
    refused: str = ""
    """Why other values than ``allowed`` are refused; empty where every value is honoured."""
    allowed: Any = ...
    """The field's default where ``...``; a list of values, or None for unset."""

    def write_flag(self, value: Any, default: Any) -> list[str]:
        """The words of the flag; none where the engine's own default is to hold."""
        if not self.flag or (value == default and not self.always) or (value := self.value(value)) is None:
            return []
        values = () if isinstance(value, bool) else value if isinstance(value, tuple) else (value,)
        return [f"--{self.flag}", *map(str, values)]


def refuse_rest(reason: str, *allowed: Any, **rest: Any) -> Translation:
    """Refuse other values than ``allowed``, or than the field's default."""
    return Translation(refused=reason, allowed=list(allowed) or ..., **rest)


def add_note(text: str, **rest: Any) -> Translation:
    return Translation(note=text, **rest)


_NOT_ON_VLLM = refuse_rest("vLLM has no such choice")
_NOT_ON_SGLANG = refuse_rest("SGLang has no such choice")
NOT_PASSED = refuse_rest("the operator cannot pass it to the server: use engine.runtime.args")


@dataclass(frozen=True, slots=True)
class OtherEngines:
    """What engines of other types make of a setting; one that a row leaves out refuses it."""

    vllm: Translation = _NOT_ON_VLLM
    sglang: Translation = _NOT_ON_SGLANG
    openai: Translation = NOT_PASSED


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting."""

    name: str
    info: FieldInfo
    field: SpecField | None
    """None where ``engine.extraArgs`` says it."""
    engines: OtherEngines

    @property
    def default(self) -> Any:
        return self.info.get_default(call_default_factory=True)

    @property
    def field_default(self) -> Any:
        return self.default if self.field is None or self.field.default is ... else self.field.default


def list_rows(settings: type[BaseModel], first: Sequence[str] = ()) -> list[SettingRow]:
    """All rows, those named in ``first`` before the others."""
    names = dict.fromkeys((*first, *settings.model_fields))
    return [_read_row(name, settings.model_fields[name]) for name in names]


def _read_row(name: str, info: FieldInfo) -> SettingRow:
    field = next((each for each in info.metadata if isinstance(each, SpecField)), None)
    return SettingRow(
        name, info, field, next((e for e in info.metadata if isinstance(e, OtherEngines)), OtherEngines())
    )


OPERATOR_SETS = SpecField("")
SGLANG_ARGS = "use engine.runtime.args, where SGLang has such a flag"
VLLM_SPECULATION = "use engine.runtime.args, as --speculative-config"
RUNTIME_ARGS = add_note("use `engine.runtime.args`")
NO_TENANTS = OtherEngines(
    refuse_rest("vLLM has no tenants, so quotas of keys do not hold there"),
    refuse_rest("SGLang has no tenants, so quotas of keys do not hold there"),
    refuse_rest("such a server has no tenants, so quotas of keys do not hold there"),
)
