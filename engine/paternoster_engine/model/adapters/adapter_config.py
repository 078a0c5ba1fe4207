"""Read PEFT's adapter_config.json: which modules have an adapter, of which rank and scale. Pure."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from paternoster_engine.model.adapters.module_patterns import MatchSteps, PatternTable, compile_pattern, is_plain
from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import Fields, shorten_value

CONFIG_FILE = "adapter_config.json"
LARGEST_RANK = 512
"""Largest rank, as vLLM's largest ``--max-lora-rank``."""
MOST_NAMES = 10_000
"""Limit for modules in a list, and for patterns."""
MOST_PATTERNS, MOST_EXPRESSIONS = 4096, 16
"""Modules with a rank or a scale of their own that are no plain names; each is compared with every module."""
LARGEST_ALPHA = 2.0**20

UNSUPPORTED: Mapping[str, str] = {
    "use_dora": "changes the magnitude of the model's weights",
    "modules_to_save": "replaces modules of the model",
    "lora_bias": "adds biases",
    "fan_in_fan_out": "is for matrices that are stored the other way round",
    "trainable_token_indices": "changes embeddings",
    "target_parameters": "changes parameters that no module multiplies with",
    "layer_replication": "repeats layers",
    "alora_invocation_tokens": "begins within a prompt",
    "use_qalora": "pools inputs",
    "use_bdlora": "has blocks of matrices",
    "arrow_config": "routes between adapters",
    "kasa_config": "has singular values",
    "monteclora_config": "draws weights at random",
    "megatron_config": "is for Megatron's layers",
}
"""Fields that must be absent, null, false or empty, and what each does."""
ALTERS_BASE = ("pissa", "olora", "loftq", "corda", "lora_ga")
"""Ways to initialise an adapter that change the base model's weights."""


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """The fields that the product depends on."""

    rank: int
    alpha: float
    rank_stabilized: bool
    ranks: PatternTable[int]
    """Ranks by pattern of modules; as ``alphas``."""
    alphas: PatternTable[float]
    targets: Callable[[str], bool]
    """Whether a module, by its name in the model, is to have an adapter."""

    def rank_of(self, module: str) -> int:
        rank = self.ranks.find(module)
        return self.rank if rank is None else rank

    def scale_of(self, module: str, rank: int) -> float:
        """Factor of the product of both matrices, which are of ``rank``."""
        alpha = self.alphas.find(module)
        return (self.alpha if alpha is None else alpha) / (math.sqrt(rank) if self.rank_stabilized else rank)


def read_adapter_config(values: Mapping[str, Any], file: str = CONFIG_FILE) -> AdapterConfig:
    """Raises :class:`UnsupportedModelError` naming the field, its value and what may be."""
    fields = Fields(values, file)
    kind = fields.read_text("peft_type")
    if kind != "LORA":
        raise fields.describe_refusal("peft_type", kind, "LORA")
    for name, does in UNSUPPORTED.items():
        if values.get(name):
            raise fields.describe_refusal(name, values[name], f"absent or false, as it {does}")
    bias = fields.read_text("bias", default="none")
    if bias != "none":
        raise fields.describe_refusal("bias", bias, "none")
    begun = values.get("init_lora_weights")
    if isinstance(begun, str) and begun.lower().startswith(ALTERS_BASE):
        raise fields.describe_refusal("init_lora_weights", begun, "one that leaves the model's weights as they are")
    steps = MatchSteps()
    return AdapterConfig(
        rank=fields.read_integer("r", LARGEST_RANK),
        alpha=fields.read_number("lora_alpha", -LARGEST_ALPHA, LARGEST_ALPHA),
        rank_stabilized=fields.read_flag("use_rslora"),
        ranks=_read_patterns(fields, file, steps, "rank_pattern", lambda own, key: own.read_integer(key, LARGEST_RANK)),
        alphas=_read_patterns(
            fields, file, steps, "alpha_pattern", lambda own, key: own.read_number(key, -LARGEST_ALPHA, LARGEST_ALPHA)
        ),
        targets=_read_targets(fields, values, steps),
    )


def _read_patterns(
    fields: Fields, file: str, steps: MatchSteps, name: str, read: Callable[[Fields, str], Any]
) -> PatternTable[Any]:
    """Numbers by pattern; a pattern that cannot be followed is refused here."""
    found = fields.read_mapping(name)
    expressions = sum(not is_plain(pattern) for pattern in found)
    if len(found) > MOST_PATTERNS or expressions > MOST_EXPRESSIONS:
        allowed = f"at most {MOST_PATTERNS}, of which {MOST_EXPRESSIONS} are no plain names"
        raise fields.describe_refusal(name, f"{len(found)} patterns, {expressions} expressions", allowed)
    own = Fields(found, f"{file}: {name}")
    return PatternTable({pattern: read(own, pattern) for pattern in found}, steps, what=f"{file}: {name}")


def _read_targets(fields: Fields, values: Mapping[str, Any], steps: MatchSteps) -> Callable[[str], bool]:
    included = _read_names(fields, values, "target_modules", steps)
    excluded = _read_names(fields, values, "exclude_modules", steps)
    layers = values.get("layers_to_transform")
    if layers is not None and layers != []:
        numbers = [layers] if type(layers) is int else layers
        if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
            raise fields.describe_refusal("layers_to_transform", layers, "a whole number or a list of them")
        if isinstance(values.get("target_modules"), str):
            raise fields.describe_refusal(
                "layers_to_transform", layers, "absent beside an expression of target_modules"
            )
        if values.get("layers_pattern") not in (None, "", [], "layers", ["layers"]):
            raise fields.describe_refusal("layers_pattern", values["layers_pattern"], "absent or layers")
        chosen: frozenset[str] | None = frozenset(map(str, numbers))
    else:
        chosen = None

    @cache
    def targets(module: str) -> bool:
        if included is None or not included(module) or (excluded is not None and excluded(module)):
            return False
        found = re.match(r"model\.layers\.(\d+)\.", module)
        return chosen is None or (found is not None and found[1] in chosen)

    return targets


def _read_names(
    fields: Fields, values: Mapping[str, Any], name: str, steps: MatchSteps
) -> Callable[[str], bool] | None:
    """Read which modules a list of names or an expression means; None for none."""
    value = values.get(name)
    if value is None or value == []:
        return None
    if isinstance(value, str):
        if name == "target_modules" and value.lower() == "all-linear":
            return _is_linear
        try:
            return compile_pattern(value, steps, what=f"{CONFIG_FILE}: {name}")
        except UnsupportedModelError as error:
            raise fields.describe_refusal(name, value, f"a list of names or an expression: {error}") from error
    if not isinstance(value, list) or len(value) > MOST_NAMES or not all(isinstance(item, str) for item in value):
        raise fields.describe_refusal(name, value, f"a list of at most {MOST_NAMES} names, or an expression")
    if name == "target_modules" and "all-linear" in [item.lower() for item in value]:
        raise fields.describe_refusal(name, shorten_value(value), "names of modules, or all-linear alone")
    return _among(value)


def _is_linear(module: str) -> bool:
    """Every matrix of a layer; the output projection is none of them."""
    return module.startswith("model.layers.")


def _among(names: Sequence[str]) -> Callable[[str], bool]:
    endings = frozenset(names)

    def is_named(module: str) -> bool:
        parts = module.split(".")
        return any(".".join(parts[first:]) in endings for first in range(len(parts)))

    return is_named
