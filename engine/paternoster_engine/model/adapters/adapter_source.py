"""Files of an adapter on this machine: those at a path, or of a folder that is fetched from where models are."""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.fields import shorten_value
from paternoster_sources.address import is_remote
from paternoster_sources.errors import SourceError
from paternoster_sources.names import ADAPTER_FILES
from paternoster_sources.storage.lock import FileLock

FILE_BYTES_PER_BYTE = 2
"""Bytes of a file for each of the matrices in memory: float32 for bfloat16."""


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """Files of an adapter, which stay in the cache while ``lease`` is open."""

    path: Path
    lease: FileLock | None = None


def resolve_adapter(source: str, digest: str | None, most_bytes: int) -> AdapterFiles:
    """Find the files of ``source``, a path or an address, fetching them where they must be.

    ``digest``: what the file of weights must hash to, as ``sha256:...``. ``most_bytes``: of the matrices in memory.

    Raises :class:`ModelError`, and ``OSError``.
    """
    files = _find_files(source, most_bytes)
    if digest is not None:
        weights = files.path if files.path.suffix == ".safetensors" else files.path / ADAPTER_FILES[1]
        with weights.open("rb") as file:
            found = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        if found != digest:
            raise ModelError(f"{shorten_value(source)} has weights with the digest {found}: must be {digest}")
    return files


def _find_files(source: str, most_bytes: int) -> AdapterFiles:
    if is_remote(source):
        # An engine without any adapter from a hub needs none of the libraries.
        from paternoster_sources.fetch import fetch_adapter
        from paternoster_sources.storage.cache import DownloadCache

        try:
            model = fetch_adapter(source, DownloadCache.for_adapters(), FILE_BYTES_PER_BYTE * most_bytes)
        except SourceError as error:
            raise ModelError(f"{error.reason}: {error}") from error
        return AdapterFiles(model.path, model.lease)
    with suppress(ValueError):
        parts = urlsplit(source)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            return AdapterFiles(Path(unquote(parts.path)))
    return AdapterFiles(Path(source))
