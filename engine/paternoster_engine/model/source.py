"""A model's address made into a path.

``package://name``, ``file:///path.gguf`` and ``file:///folder`` are on this machine; ``hf://``, ``s3://``, ``gs://``,
``https://``, ``oci-archive://`` and ``oci-layout://`` are in the cache of :mod:`paternoster_sources`, which fetches
what is not there yet.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from paternoster_engine.model.errors import ModelSourceError, ModelUnavailable
from paternoster_engine.model.weights.model_folder import some_of
from paternoster_sources.address import IN_REGISTRY, is_remote
from paternoster_sources.names import explain_folder, is_beside_gguf, parts_of

ALLOWED = (
    "allowed: file:///path/to/model.gguf, file:///folder with safetensors or one .gguf file, package://python_package, "
    "hf://org/name, s3://bucket/prefix, gs://bucket/prefix, https://host/path/model.gguf, "
    "oci-archive:///path/image.tar, oci-layout:///path/folder"
)
USUAL = ("", "models")
"""Where in a folder a model is: in itself, or where images of models have it (KServe)."""

SHOWN = 20
"""Names in a message."""
MAX_LISTED = 10_000
"""Most files of a folder without a model that are listed to explain what is missing."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model that exists on this machine's disk."""

    format: Literal["gguf", "safetensors"]
    path: Path
    """The .gguf file (the first of several parts), or the folder with config.json, tokenizer.json and *.safetensors."""


def resolve_source(address: str) -> ModelSource:
    """Find the model behind ``address``, fetching it where it must be.

    What was fetched stays in the cache as long as this process lives. Raises :class:`ModelSourceError`, and
    :class:`ModelUnavailable` for what may be there later.
    """
    if is_remote(address):
        return _fetch_source(address)
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise ModelSourceError(f"model {address!r}: {error}; {ALLOWED}") from error
    if parts.scheme == "package":
        return _from_package(address, parts.netloc + parts.path)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ModelSourceError(f"model {address!r}: a file address has three slashes; {ALLOWED}")
        return _from_path(address, Path(unquote(parts.path)))
    if parts.scheme == "oci":
        raise ModelSourceError(f"model {address!r}: {IN_REGISTRY}")
    raise ModelSourceError(f"model {address!r}: unknown scheme {parts.scheme!r}; {ALLOWED}")


def _fetch_source(address: str) -> ModelSource:
    # A laptop that serves files alone needs none of the libraries.
    from paternoster_sources.errors import SourceError
    from paternoster_sources.fetch import fetch_model
    from paternoster_sources.report import log_progress

    try:
        model = fetch_model(address, report=log_progress(address))
    except SourceError as error:
        kind = ModelUnavailable if error.transient else ModelSourceError
        raise kind(f"{error.reason}: {error}") from error
    return _from_path(address, model.path)


def _from_package(address: str, package: str) -> ModelSource:
    if not package.isidentifier():
        raise ModelSourceError(f"model {address!r}: {package!r} is not the name of a top-level Python package")
    spec = find_spec(package)
    if spec is None:
        raise ModelSourceError(f"model {address!r}: the Python package {package!r} is not installed")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = sorted(file for folder in folders for file in folder.glob("*.gguf"))
    # A folder of a model in the package, or the package itself.
    files += sorted(file for folder in folders for file in (*folder.glob("config.json"), *folder.glob("*/config.json")))
    if len(files) != 1:
        found = ", ".join(file.name for file in files) or "none"
        raise ModelSourceError(
            f"model {address!r}: the package must carry exactly one .gguf file or one folder with a config.json, "
            f"found {found}"
        )
    return _from_path(address, files[0] if files[0].suffix == ".gguf" else files[0].parent)


def _from_path(address: str, path: Path) -> ModelSource:
    if path.is_dir():
        return _from_folder(address, path)
    if not path.is_file():
        raise ModelSourceError(f"model {address!r}: there is no file or folder {path}")
    if path.suffix != ".gguf":
        raise ModelSourceError(f"model {address!r}: {path.name} is not a .gguf file; {ALLOWED}")
    return _gguf_source(address, path)


def _gguf_source(address: str, path: Path) -> ModelSource:
    """Return the file ``path``, or the first file of the split model that it is a part of."""
    parts = parts_of(path.name)
    if missing := [name for name in parts if not (path.parent / name).is_file()]:
        raise ModelSourceError(
            f"model {address!r}: {path.name} is one of {len(parts)} parts, and there is no "
            f"{some_of(missing, SHOWN)} beside it"
        )
    return ModelSource("gguf", path.parent / parts[0])


def _from_folder(address: str, folder: Path) -> ModelSource:
    places = [folder / name for name in USUAL]
    place = next((place for place in places if any(place.glob("*.safetensors")) or any(place.glob("*.gguf"))), folder)
    missing = [name for name in ("config.json", "tokenizer.json", "*.safetensors") if not any(place.glob(name))]
    if not missing:
        return ModelSource("safetensors", place)
    ggufs = [file.name for file in sorted(place.glob("*.gguf")) if not is_beside_gguf(file.name)]
    models = list(dict.fromkeys(parts_of(name)[0] for name in ggufs))
    if len(models) > 1:
        raise ModelSourceError(
            f"model {address!r}: the folder has several .gguf files; name one of them: {some_of(models, SHOWN)}"
        )
    if models:
        return _gguf_source(address, place / ggufs[0])
    why = explain_folder([file.name for file in islice(place.iterdir(), MAX_LISTED)])
    raise ModelSourceError(
        f"model {address!r}: the folder has no {', '.join(missing)}{f': {why}' if why else ''}; {ALLOWED}"
    )
