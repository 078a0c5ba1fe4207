"""What a folder has beside the files that are read, and what of those is not used: a line each, for the log."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from paternoster_engine.model.fields import Fields, shown
from paternoster_engine.model.weights.model_folder import ModelFolder, some_of
from paternoster_sources.names import INDEX

GENERATES = re.compile(r".*(ForCausalLM|ForConditionalGeneration|LMHeadModel|ChatModel|Model)")
"""Names of classes of transformers whose hidden states the language model's head is made for, or that have none."""


def notes_of_folder(folder: ModelFolder, config: Mapping[str, Any], weights: Collection[str]) -> list[str]:
    """``config``: a config.json; raises :class:`UnsupportedModelError` for that of no language model."""
    fields = Fields(config, "config.json")
    for name in fields.texts("architectures", default=[]):
        if not GENERATES.fullmatch(name) or name.endswith("RewardModel"):
            raise fields.refusal("architectures", name, "of a language model, such as LlamaForCausalLM")
    notes = note_of_other_weights(folder, weights)
    if folder.passes_over_index(weights):
        notes.append(f"{INDEX} is not read: it names none of {some_of(weights)}")
    if folder.has("adapter_config.json"):
        notes.append("adapter_config.json is not read: the model is served without the adapter")
    if own := fields.mapping("auto_map"):
        notes.append(f"config.json: auto_map is not used: {shown(dict(own))} would be code of the repository")
    return notes


def note_of_other_weights(folder: ModelFolder, weights: Collection[str]) -> list[str]:
    """One line on files with weights that are none of the model's."""
    others = folder.other_weights(weights)
    if not others:
        return []
    return [f"{some_of(others)} {'is' if len(others) == 1 else 'are'} not read: the model is {some_of(weights)}"]


def quantization_of(folder: ModelFolder, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What says how numbers are packed, wherever vLLM finds it; empty for a model of plain numbers.

    Raises :class:`UnsupportedModelError`.
    """
    fields = Fields(config, "config.json")
    inner = Fields(fields.mapping("text_config"), "config.json: text_config")
    # The older name of what compressed-tensors writes is the last.
    places = ((fields, "quantization_config"), (inner, "quantization_config"), (fields, "compression_config"))
    said = next((found for place, key in places if (found := place.mapping(key))), {})
    if said or not folder.has("hf_quant_config.json"):
        return said
    of_modelopt = Fields(folder.json("hf_quant_config.json"), "hf_quant_config.json").mapping("quantization")
    quantization = Fields(of_modelopt, "hf_quant_config.json: quantization")
    algorithm = quantization.text("quant_algo", default=None)
    if algorithm not in (None, "FP8"):
        raise quantization.refusal("quant_algo", algorithm, "FP8")
    return {} if algorithm is None else {"quant_method": "modelopt", "quant_algo": algorithm}


def note_of_unused(tensors: Iterable[str]) -> list[str]:
    """One line on ``tensors``, those of layers together."""
    counted = Counter(re.sub(r"\.\d+(?=\.|$)", ".*", name) for name in tensors)
    if not counted:
        return []
    each = [shown(name)[1:-1] + (f" ({count})" if count > 1 else "") for name, count in counted.items()]
    return [f"{counted.total()} tensors of its files are not used: {some_of(each)}"]
