"""An adapter's files, checked against the model that they are for, as matrices that its decoder adds."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import torch

from paternoster_engine.model.adapters.adapter_config import (
    CONFIG_FILE,
    LARGEST_RANK,
    AdapterConfig,
    read_adapter_config,
)
from paternoster_engine.model.checkpoints.shapes import expected_shapes
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.families.family import rows_of, stored_name
from paternoster_engine.model.families.registry import find_family
from paternoster_engine.model.fields import shorten_value
from paternoster_engine.model.weights.model_folder import ModelFolder
from paternoster_engine.model.weights.safetensors_file import FLOATS, FileTensor, read_safetensors
from paternoster_kernels.lora_batch import LoraMatrices, LoraMatrix

WEIGHTS_FILE, PICKLED_FILE = "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."
PROJECTIONS = (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
)  # fmt: skip
"""Matrices of a layer that may have an adapter, in the order of :class:`LoraMatrices`."""
DOWN, UP = "lora_A.weight", "lora_B.weight"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LoraAdapter:
    """A low-rank adapter, ready for one model."""

    digest: bytes
    """Digest of all tensors and scales, 16 bytes: adapters of one digest add the same."""
    matrices: LoraMatrices

    @property
    def nbytes(self) -> int:
        return self.matrices.nbytes


@dataclass(frozen=True, slots=True)
class ModulePlace:
    """A matrix of the decoder within a module of the files."""

    number: int
    """Place in :class:`LoraMatrices`."""
    first: int
    """First of the module's outputs."""
    outputs: int


@dataclass(frozen=True, slots=True)
class Module:
    """Matrix that the model multiplies with under one name of its files."""

    inputs: int
    outputs: int
    places: tuple[ModulePlace, ...]


def list_modules(config: ModelConfig) -> dict[str, Module]:
    """Every module that may have an adapter, by its name in a file of the model's weights."""
    family, shapes = find_family(config.architecture), dict(expected_shapes(config))
    found: dict[str, Module] = {}
    for layer in range(config.num_layers):
        for place, projection in enumerate(PROJECTIONS):
            name = f"model.layers.{layer}.{projection}.weight"
            if name not in shapes:
                # Of experts, which are many.
                continue
            outputs, inputs = shapes[name]
            stored, rows = stored_name(family, name).removesuffix(".weight"), rows_of(config, family, name)
            before = found.get(stored, Module(inputs, 0, ()))
            own = ModulePlace(layer * len(PROJECTIONS) + place, 0 if rows is None else rows.start, outputs)
            found[stored] = Module(inputs, before.outputs + outputs, (*before.places, own))
    return found


@dataclass(frozen=True, slots=True)
class OpenAdapter:
    """Files whose fields, names and shapes are right, before one number is read."""

    nbytes: int
    """Bytes of its matrices, once they are read."""
    read: Callable[[], LoraAdapter]
    """Raises :class:`ModelError` for numbers that are none."""


def open_adapter(
    path: Path, most_bytes: int, *, config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> OpenAdapter:
    """Open a folder, or its file of weights, that PEFT wrote; raises :class:`ModelError`.

    ``most_bytes``: that its matrices may take. ``dtype`` and ``device``: of the model's activations.
    """
    weights = path / WEIGHTS_FILE
    if path.suffix == ".safetensors":
        path, weights = path.parent, path
    folder = ModelFolder(path)
    if not folder.has_file(CONFIG_FILE):
        raise ModelError(f"{path} has no {CONFIG_FILE}: must be a folder that PEFT wrote")
    wanted = read_adapter_config(folder.json(CONFIG_FILE), str(path / CONFIG_FILE))
    if not weights.exists():
        other = f", but {PICKLED_FILE}, which is a pickle" if folder.has_file(PICKLED_FILE) else ""
        raise ModelError(f"{path} has no {weights.name}{other}: must have safetensors")
    tensors = read_safetensors(folder.resolve_file(weights), mapped=False)
    checked, size = _check_tensors(tensors, wanted, list_modules(config), str(weights), dtype.itemsize, most_bytes)
    return OpenAdapter(size, lambda: _pack_adapter(checked, config, dtype, device))


@dataclass(frozen=True, slots=True)
class CheckedModule:
    """Both matrices of one module, whose names and shapes are right."""

    name: str
    module: Module
    down: FileTensor
    up: FileTensor
    scale: float


def _check_tensors(
    tensors: Mapping[str, FileTensor],
    wanted: AdapterConfig,
    modules: Mapping[str, Module],
    file: str,
    itemsize: int,
    most_bytes: int,
) -> tuple[list[CheckedModule], int]:
    """All modules in the model's order, and how many bytes they take; raises :class:`ModelError`."""
    halves: dict[str, dict[str, FileTensor]] = {}
    for name, tensor in tensors.items():
        own_name, half = _split_name(name, modules, file)
        if tensor.kind not in FLOATS:
            raise ModelError(f"{file}: {shorten_value(name)} is of {tensor.kind}: must be of {', '.join(FLOATS)}")
        if not wanted.targets(own_name):
            raise ModelError(f"{file} has {shorten_value(name)}, which target_modules of {CONFIG_FILE} does not name")
        halves.setdefault(own_name, {})[half] = tensor
    if not halves:
        raise ModelError(f"{file} has no tensors: must have those of one module at least")
    checked, size = [], 0
    for name, module in modules.items():
        if wanted.targets(name) and name not in halves:
            raise ModelError(f"{file} has no tensors for {name}, which target_modules of {CONFIG_FILE} names")
        if name not in halves:
            continue
        rank = wanted.rank_of(name)
        for half, shape in ((DOWN, (rank, module.inputs)), (UP, (module.outputs, rank))):
            own = halves[name].get(half)
            if own is None:
                raise ModelError(f"{file} has no {name}.{half}")
            if own.shape != shape:
                raise ModelError(
                    f"{file}: {name}.{half} has the shape {shorten_value(list(own.shape))}: must be {list(shape)} by "
                    f"the model's sizes and rank {rank} (at most {LARGEST_RANK}): is it for another model?"
                )
        size += rank * (len(module.places) * module.inputs + module.outputs) * itemsize
        if size > most_bytes:
            raise ModelError(f"{file} takes more than {most_bytes} bytes: must be at most max_adapter_memory")
        checked.append(CheckedModule(name, module, halves[name][DOWN], halves[name][UP], wanted.scale_of(name, rank)))
    return checked, size


def _split_name(name: str, modules: Mapping[str, Module], file: str) -> tuple[str, str]:
    """The module that a tensor is of, and which half of its adapter it is."""
    module, _, half = name.removeprefix(PREFIX).rpartition(".lora_")
    half = f"lora_{half}"
    # Of a model that takes images as well the text's decoder has a prefix.
    plain = module.replace("model.language_model.", "model.", 1)
    for own in (module, plain, module.removeprefix("language_model.")):
        if own in modules and half in (DOWN, UP):
            return own, half
    if "lora_embedding" in name or "lm_head" in name or "embed_tokens" in name:
        why = "adapters of embeddings and of the output projection are not built in"
    elif "lora_magnitude" in name:
        why = "DoRA is not built in"
    else:
        some = ", ".join(islice(modules, len(PROJECTIONS)))
        why = f"must be {DOWN} or {UP} of a module of the model, such as {some}"
    raise ModelError(f"{file} has {shorten_value(name)}: {why}")


def _pack_adapter(
    checked: list[CheckedModule], config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> LoraAdapter:
    """Read and hash all numbers, once each."""
    digest = blake2b(digest_size=16, person=b"lora adapter")
    matrices: list[LoraMatrix | None] = [None] * (config.num_layers * len(PROJECTIONS))
    for item in checked:
        for number, matrix in _read_module(item, digest.update, dtype, device):
            matrices[number] = matrix
    return LoraAdapter(digest.digest(), LoraMatrices(matrices))


def _read_module(
    item: CheckedModule, add: Callable[[bytes], None], dtype: torch.dtype, device: torch.device
) -> Iterator[tuple[int, LoraMatrix]]:
    add(f"{item.name} {item.scale.hex()}".encode())
    read = []
    for half, stored in ((DOWN, item.down), (UP, item.up)):
        numbers = stored[()]
        add(f"{half} {stored.kind} {stored.shape}".encode())
        add(numbers.contiguous().view(torch.uint8).numpy().tobytes())
        narrow = numbers.to(dtype)
        if not bool(narrow.isfinite().all()):
            raise ModelError(f"{item.name}.{half} has NaN or infinite numbers as {str(dtype).removeprefix('torch.')}")
        read.append(narrow.to(device))
    down, up = read
    for place in item.module.places:
        rows = up[place.first : place.first + place.outputs]
        # A GPU's product takes the outputs in rows, a CPU's in columns.
        laid = rows.contiguous().T if device.type == "cuda" else rows.T.contiguous()
        yield place.number, LoraMatrix(down.contiguous(), laid, item.scale)
