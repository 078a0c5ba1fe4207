"""Notes for the log on the files of a folder that are not read, and on the parts of the others that are not used."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from paternoster_engine.model.fields import Fields, shorten_value
from paternoster_engine.model.weights.model_folder import ModelFolder, some_of
from paternoster_sources.names import INDEX

GENERATES = re.compile(r".*(ForCausalLM|ForConditionalGeneration|LMHeadModel|ChatModel|Model)")
"""Classes of transformers that are language models, or the body of one without a head."""


def notes_of_folder(folder: ModelFolder, config: Mapping[str, Any], weights: Collection[str]) -> list[str]:
    """Return notes; raises :class:`UnsupportedModelError` if ``config``, a config.json, is not of a language model."""
    fields = Fields(config, "config.json")
    for name in fields.read_texts("architectures", default=[]):
        if not GENERATES.fullmatch(name) or name.endswith("RewardModel"):
            raise fields.describe_refusal("architectures", name, "of a language model, such as LlamaForCausalLM")
        if "bidirec" in name.lower() and fields.read_flag("is_causal", default=True):
            raise fields.describe_refusal("architectures", name, "of a decoder that generates, or with is_causal false")
    notes = note_of_other_weights(folder, weights)
    if folder.passes_over_index(weights):
        notes.append(f"{INDEX} is not read: it names none of {some_of(weights)}")
    if folder.has_file("adapter_config.json"):
        notes.append("adapter_config.json is not read: the model is served without the adapter")
    if own := fields.read_mapping("auto_map"):
        notes.append(f"config.json: auto_map is not used: {shorten_value(dict(own))} would be code of the repository")
    return notes


def note_of_other_weights(folder: ModelFolder, weights: Collection[str]) -> list[str]:
    """Return a note that names the files with weights beside the model's, if there are any."""
    others = folder.other_weights(weights)
    if not others:
        return []
    return [f"{some_of(others)} {'is' if len(others) == 1 else 'are'} not read: the model is {some_of(weights)}"]


def quantization_of(folder: ModelFolder, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the quantization config, from all places where vLLM reads it; empty for a model without quantization.

    Raises :class:`UnsupportedModelError`.
    """
    fields = Fields(config, "config.json")
    inner = Fields(fields.read_mapping("text_config"), "config.json: text_config")
    # compression_config is the older name that compressed-tensors wrote.
    places = ((fields, "quantization_config"), (inner, "quantization_config"), (fields, "compression_config"))
    config_found = next((found for place, key in places if (found := place.read_mapping(key))), {})
    if config_found or not folder.has_file("hf_quant_config.json"):
        return config_found
    of_modelopt = Fields(folder.json("hf_quant_config.json"), "hf_quant_config.json").read_mapping("quantization")
    quantization = Fields(of_modelopt, "hf_quant_config.json: quantization")
    algorithm = quantization.read_text("quant_algo", default=None)
    if algorithm not in (None, "FP8"):
        raise quantization.describe_refusal("quant_algo", algorithm, "FP8")
    return {} if algorithm is None else {"quant_method": "modelopt", "quant_algo": algorithm}


def note_of_unused(tensors: Iterable[str]) -> list[str]:
    """Return a note that names ``tensors``, with those of all layers counted together, if there are any."""
    counted = Counter(re.sub(r"\.\d+(?=\.|$)", ".*", name) for name in tensors)
    if not counted:
        return []
    each = [shorten_value(name)[1:-1] + (f" ({count})" if count > 1 else "") for name, count in counted.items()]
    return [f"{counted.total()} tensors of its files are not used: {some_of(each)}"]
