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
    """The field of an ``LLMDeployment`` that sets a setting."""

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
    """True where the types of the resource declare it, and ``desired/engine_args`` translates it."""


@dataclass(frozen=True, slots=True)
class Translation:
    """The effect of a setting on an engine of another type: a flag, a variable, something else, or a refusal."""

    flag: str = ""
    """Its name without hyphens."""
    value: Callable[[Any], Any] = lambda value: value
    """The value of flag or variable, of the setting's; None for no flag."""
    always: bool = False
    """True where a flag of the setting's default, too, is written in place of the engine's own default."""
    other_flags: tuple[str, ...] = ()
    """Further flags that set the same: ``engine.runtime.args`` may have none of them."""
    variable: str = ""
    """Environment variable of the container, which a manifest's own flags may name."""
    note: str = ""
    """The effect of the setting in words, for docs."""
    refused: str = ""
    """Reason for which other values than ``allowed`` are refused; empty where every value is honoured."""
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
NOT_PASSED = refuse_rest("use engine.runtime.args")


@dataclass(frozen=True, slots=True)
class OtherEngines:
    """Translations of a setting for engines of other types; an engine that a row leaves out refuses it."""

    vllm: Translation = _NOT_ON_VLLM
    sglang: Translation = _NOT_ON_SGLANG
    openai: Translation = NOT_PASSED


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting."""

    name: str
    info: FieldInfo
    field: SpecField | None
    """None where ``engine.extraArgs`` sets it."""
    engines: OtherEngines

    default: Any
    """The setting's own."""

    @property
    def field_default(self) -> Any:
        return self.default if self.field is None or self.field.default is ... else self.field.default


def list_rows(settings: type[BaseModel], first: Sequence[str] = ()) -> list[SettingRow]:
    """All rows, those named in ``first`` before the others."""
    names = dict.fromkeys((*first, *settings.model_fields))
    return [_read_row(name, settings.model_fields[name]) for name in names]


def _read_row(name: str, info: FieldInfo) -> SettingRow:
    field = next((each for each in info.metadata if isinstance(each, SpecField)), None)
    engines = next((each for each in info.metadata if isinstance(each, OtherEngines)), OtherEngines())
    return SettingRow(name, info, field, engines, info.get_default(call_default_factory=True))


OPERATOR_SETS = SpecField("")
SGLANG_ARGS = "use engine.runtime.args, where SGLang has such a flag"
VLLM_SPECULATION = "use engine.runtime.args, as --speculative-config"
RUNTIME_ARGS = add_note("use `engine.runtime.args`")
NO_TENANTS = OtherEngines(
    refuse_rest("vLLM has no tenants, so quotas of keys do not hold there"),
    refuse_rest("SGLang has no tenants, so quotas of keys do not hold there"),
    refuse_rest("such a server has no tenants, so quotas of keys do not hold there"),
)
