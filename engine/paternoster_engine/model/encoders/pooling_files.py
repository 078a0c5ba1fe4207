"""What the files of sentence-transformers say of a model's vectors."""

from collections.abc import Mapping
from typing import Any

from paternoster_engine.model.config import LARGEST_SIZE, LONGEST_CONTEXT
from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import Fields, parse_list, shorten_value
from paternoster_engine.model.pooling import Pooling, PoolingMode
from paternoster_engine.model.weights.model_folder import ModelFolder

MODES: Mapping[str, PoolingMode] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
OTHER_MODES = (
    "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens",
)
STEPS = ("Transformer", "Pooling", "Normalize")
"""Steps of ``modules.json``, in this order; the last may be missing."""


def read_pooling(folder: ModelFolder, config: Mapping[str, Any]) -> Pooling | None:
    """None for a folder without ``modules.json``; ``config``: its config.json.

    Raises :class:`ModelError` for a step between text and vector that is none of ours.
    """
    if not folder.has_file("modules.json"):
        return None
    modules = parse_list(folder.read_text("modules.json"), "modules.json")
    kinds = [str(module.get("type")).rpartition(".")[2] for module in modules]
    if tuple(kinds) not in (STEPS, STEPS[:2]):
        raise UnsupportedModelError(
            f"modules.json has {shorten_value(kinds)}: must be Transformer, Pooling and maybe Normalize"
        )
    path = modules[1].get("path")
    if not isinstance(path, str) or path != path.strip("/.") or "/" in path or not path:
        raise UnsupportedModelError(f"modules.json: path is {shorten_value(path)}: must be the name of a folder")
    pooled = Fields(folder.json(f"{path}/config.json"), f"{path}/config.json")
    fields = Fields(_read_optional(folder, "config_sentence_transformers.json"), "config_sentence_transformers.json")
    text = Fields(_read_optional(folder, "sentence_bert_config.json"), "sentence_bert_config.json")
    prompts = dict(fields.read_mapping("prompts"))
    for name, prompt in prompts.items():
        if not isinstance(prompt, str):
            raise fields.describe_refusal(f"prompts.{name}", prompt, "a text")
    default = fields.read_text("default_prompt_name", default=None)
    if default is not None and default not in prompts:
        raise fields.describe_refusal("default_prompt_name", default, f"one of {', '.join(prompts) or 'no prompts'}")
    if any(prompts.values()) and not pooled.read_flag("include_prompt", default=True):
        raise pooled.describe_refusal("include_prompt", False, "true: a prompt's tokens are pooled with the text's")
    own = Fields(config, "config.json")
    sizes = tuple(own.read_integers("matryoshka_dimensions", LARGEST_SIZE, default=[]))
    return Pooling(
        mode=_find_mode(pooled),
        size=own.read_integer("hidden_size", LARGEST_SIZE),
        normalized=len(kinds) == len(STEPS),
        shortens=bool(sizes) or own.read_flag("is_matryoshka"),
        sizes=sizes,
        prompts=prompts,
        prompt="" if default is None else prompts[default],
        max_length=text.read_integer("max_seq_length", LONGEST_CONTEXT, default=None),
        lower_case=text.read_flag("do_lower_case"),
    )


def _read_optional(folder: ModelFolder, name: str) -> Mapping[str, Any]:
    return folder.json(name) if folder.has_file(name) else {}


def _find_mode(pooled: Fields) -> PoolingMode:
    modes = [mode for field, mode in MODES.items() if pooled.read_flag(field)]
    # Later files have one text, or a list of them that is joined.
    named = pooled.read_text("pooling_mode", default=None)
    if named is not None:
        by_name: Mapping[str, PoolingMode] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
        if named not in by_name:
            raise pooled.describe_refusal("pooling_mode", named, f"one of {', '.join(by_name)}")
        modes.append(by_name[named])
    others = [field for field in OTHER_MODES if pooled.read_flag(field)]
    if others or len(set(modes)) != 1:
        named_modes = [*others, *modes]
        raise UnsupportedModelError(f"the pooling is {shorten_value(named_modes)}: must be one of {', '.join(MODES)}")
    return modes[0]
