"""Sampling settings that a model's publisher recommends, used as in vLLM for requests that leave them out.

From generation_config.json (https://huggingface.co/docs/transformers/main_classes/text_generation), or from the
``general.sampling`` fields that llama.cpp's converter makes of it in a GGUF file.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from paternoster_contract.default_parameters import LEAST_PENALTY, MOST_PENALTY, MOST_TEMPERATURE, MOST_TOKENS
from paternoster_engine.model.fields import Fields, shorten_value
from paternoster_engine.model.unread_fields import GENERATION_CONFIG, RecordedFields, note_unread

_OF_GGUF = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}
"""Field of requests -> key of GGUF files behind ``general.sampling.``."""
_WITHOUT_EFFECT: Mapping[str, Sequence[Any]] = {
    "begin_suppress_tokens": ([],),
    "bad_words_ids": ([],),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "exponential_decay_length_penalty": (),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "guidance_scale": (1,),
    "max_length": (20,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "no_repeat_ngram_size": (0,),
    "num_beams": (1,),
    "penalty_alpha": (0,),
    "sequence_bias": ({},),
    "stop_strings": ([], ""),
    "suppress_tokens": ([],),
    "top_h": (),
    "typical_p": (1,),
}
"""Field of generation_config.json that is not used, as in vLLM -> values with which it would not change answers."""
_GGUF_WITHOUT_EFFECT: Mapping[str, Sequence[Any]] = {
    "mirostat": (0,),
    "penalty_last_n": (-1,),
    "sequence": (),
    "xtc_probability": (0,),
}


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """Values for fields of requests, by field name; None where the publisher recommends none."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    """Limit of a chat without its own; ``max_new_tokens`` in the file."""
    notes: Sequence[str] = field(default=(), compare=False, repr=False)
    """One line for each part of the files that has no effect."""

    def list_set_values(self) -> dict[str, float | int]:
        """The values that the publisher recommends."""
        values = asdict(self)
        del values["notes"]
        return {name: value for name, value in values.items() if value is not None}


NO_DEFAULTS = SamplingDefaults()


def defaults_of_generation_config(values: Mapping[str, Any]) -> SamplingDefaults:
    """Read a parsed generation_config.json; ``do_sample: false`` means temperature 0.

    Raises :class:`UnsupportedModelError` for a value that no request may have.
    """
    values = RecordedFields.wrap_fields(values)
    fields = Fields(values, "generation_config.json")
    greedy = not fields.read_flag("do_sample", default=True)
    temperature = fields.read_number("temperature", 0, MOST_TEMPERATURE, default=None)
    defaults = SamplingDefaults(
        temperature=0.0 if greedy else temperature,
        top_p=fields.read_number("top_p", 0, 1, default=None),
        top_k=fields.read_integer("top_k", MOST_TOKENS, least=-1, default=None),
        min_p=fields.read_number("min_p", 0, 1, default=None),
        repetition_penalty=fields.read_number("repetition_penalty", LEAST_PENALTY, MOST_PENALTY, default=None),
        max_tokens=fields.read_integer("max_new_tokens", MOST_TOKENS, default=None),
    )
    ignored = _describe_ignored("generation_config.json: ", values, _WITHOUT_EFFECT)
    return replace(defaults, notes=[*ignored, *note_unread(values, GENERATION_CONFIG)])


def defaults_of_gguf(metadata: Mapping[str, Any]) -> SamplingDefaults:
    """Read the fields of a GGUF file; raises :class:`UnsupportedModelError` for a value that no request may have."""
    prefix = "general.sampling."
    values = {name: _undo_rounding(metadata.get(prefix + key)) for name, key in _OF_GGUF.items()}
    # llama.cpp samples greedily below 0.
    if isinstance(values["temperature"], float | int):
        values["temperature"] = max(0.0, values["temperature"])
    fields = Fields({prefix + _OF_GGUF[name]: value for name, value in values.items()}, "the GGUF file", prefix)
    others = {name: metadata.get(prefix + name) for name in _GGUF_WITHOUT_EFFECT}
    return SamplingDefaults(
        temperature=fields.read_number("temp", 0, MOST_TEMPERATURE, default=None),
        top_p=fields.read_number("top_p", 0, 1, default=None),
        top_k=fields.read_integer("top_k", MOST_TOKENS, least=-1, default=None),
        min_p=fields.read_number("min_p", 0, 1, default=None),
        repetition_penalty=fields.read_number("penalty_repeat", LEAST_PENALTY, MOST_PENALTY, default=None),
        notes=_describe_ignored(f"the GGUF file: {prefix}", others, _GGUF_WITHOUT_EFFECT),
    )


def _describe_ignored(where: str, values: Mapping[str, Any], neutral: Mapping[str, Sequence[Any]]) -> list[str]:
    given = {name: values[name] for name in neutral if values.get(name) is not None}
    unused = [f"{name} {shorten_value(value)}" for name, value in given.items() if value not in neutral[name]]
    return [f"{where}{', '.join(unused)} has no effect here: requests may ask for what they need"] if unused else []


def _undo_rounding(value: Any) -> Any:
    """Undo the rounding to float32, which turns 0.95 into 0.949999988."""
    return float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value
