"""Flags of ``paternoster serve`` that a resource gives as they are, and the fields that say the other settings."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from paternoster_contract.flags import flag_errors
from paternoster_contract.settings.engine_args import EngineArgs

_OF_SPEC: Mapping[str, str] = {
    "model": "model.source",
    "served_model_name": "model.servedName",
    "chat_template": "model.chatTemplate",
    "tool_parser": "model.toolParser",
    "tool_template": "model.toolTemplate",
    "reasoning_parser": "model.reasoningParser",
    "generation_config": "model.generationConfig",
    "task": "model.task",
    "pooling": "model.pooling",
    "matryoshka": "model.matryoshka",
    "device": "resources.gpu.count",
    "tensor_parallel_size": "resources.gpu.count",
    "threads": "resources.limits.cpu",
    "drain_timeout": "drain.timeoutSeconds",
    "live_cap": "concurrency.initial",
    "token_budget": "concurrency.tokenBudget",
    "gpu_memory_utilization": "engine.memory.gpuUtilizationPercent",
    "max_queued_per_tenant": "engine.tenants.maxQueued",
    "max_running_per_tenant": "engine.tenants.maxRunning",
    "tenant_tokens_per_second": "engine.tenants.tokensPerSecond",
    "tenant_token_burst": "engine.tenants.tokenBurst",
    "tenant_weights": "engine.tenants.weights",
}
"""Settings that a field of another name says."""
_OF_OPERATOR = ("host", "port", "admin_port", "api_keys", "admin_keys", "identity_header")


def fields_of_settings(engine: type[BaseModel]) -> dict[str, str | None]:
    """By setting: the field below spec that says it, None where the operator does. ``engine`` is spec.engine's type."""
    named = {name.removesuffix("_seconds"): path for name, path in _list_paths(engine, "engine")}
    same = {name: path for name, path in named.items() if name in EngineArgs.model_fields}
    return {**same, **_OF_SPEC, **dict.fromkeys(_OF_OPERATOR)}


def parse_extra_args(words: Sequence[str], fields: Mapping[str, str | None]) -> dict[str, Any]:
    """Settings of ``words``, checked as ``paternoster serve`` checks them; ``fields`` as :func:`fields_of_settings`.

    Raises ``ValueError`` in the parser's own words, and for settings that ``fields`` has.
    """
    parser = _Parser(prog="paternoster serve", add_help=False, allow_abbrev=False)
    EngineArgs.add_flags(parser)
    namespace = parser.parse_args(words)
    given = {name for name, value in vars(namespace).items() if value is not None}
    faults = [_describe_owned_flag(name, fields[name]) for name in sorted(given & fields.keys())]
    if not faults:
        try:
            settings = EngineArgs.from_namespace(namespace)
        except ValidationError as error:
            faults = flag_errors(error)
        else:
            return {name: getattr(settings, name) for name in given}
    raise ValueError("; ".join(faults))


def _describe_owned_flag(setting: str, field: str | None) -> str:
    flag = "--" + setting.replace("_", "-")
    return f"{flag} is for the operator to set" if field is None else f"{flag} must not be here: use spec.{field}"


def _list_paths(model: type[BaseModel], path: str) -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        inner, here = field.annotation, f"{path}.{field.alias}"
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _list_paths(inner, here)
        else:
            yield name, here


class _Parser(argparse.ArgumentParser):
    """What would end a command is an error."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise ValueError((message or "").strip().removeprefix(f"{self.prog}: "))
