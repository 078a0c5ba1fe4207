"""OCI images for tests, written by hand: layouts in folders and archives, honest and not."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.sources.model_files import AT_ONCE

from paternoster_sources.fetch import fetch_model
from paternoster_sources.remote.layers import _import_zstd
from paternoster_sources.storage.cache import CachedModel, DownloadCache

LAYER = "application/vnd.oci.image.layer.v1.tar"
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
PACKED = {"": lambda data: data, "+gzip": gzip.compress, "+zstd": lambda data: _import_zstd().compress(data)}


def member(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.DIRTYPE)


def tar(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Layout:
    """An image layout below ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.images: list[dict[str, Any]] = []
        (path / "blobs" / "sha256").mkdir(parents=True)
        (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def blob(self, data: bytes) -> Path:
        return self.path / "blobs" / "sha256" / hashlib.sha256(data).hexdigest()

    def put(self, data: bytes, media_type: str, **more: Any) -> dict[str, Any]:
        self.blob(data).write_bytes(data)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        return {"mediaType": media_type, "digest": digest, "size": len(data), **more}

    def document(self, media_type: str, document: dict[str, Any], **more: Any) -> dict[str, Any]:
        return self.put(json.dumps({"schemaVersion": 2, **document}).encode(), media_type, **more)

    def manifest(self, *layers: bytes, packed: str = "", **more: Any) -> dict[str, Any]:
        put = [self.put(PACKED[packed](layer), LAYER + packed) for layer in layers]
        return self.document(MANIFEST, {"layers": put}, **more)

    def image(self, *layers: bytes, packed: str = "", tag: str | None = None) -> dict[str, Any]:
        more = {} if tag is None else {"annotations": {"org.opencontainers.image.ref.name": tag}}
        return self.index(self.manifest(*layers, packed=packed, **more))

    def index(self, *images: dict[str, Any]) -> dict[str, Any]:
        self.images += images
        (self.path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": self.images}))
        return images[0]

    @property
    def address(self) -> str:
        return f"oci-layout://{self.path}"

    def archive(self, path: Path) -> str:
        """Write the layout as one tar; its address."""
        with tarfile.open(path, "w") as out:
            for file in sorted(self.path.rglob("*")):
                out.add(file, file.relative_to(self.path).as_posix(), recursive=False)
        return f"oci-archive://{path}"


def files_layer(files: dict[str, bytes], top: str = "models") -> bytes:
    """Layer like those of buildah and docker for what was copied into a folder."""
    inside = [folder(top)] if top else []
    return tar(*inside, *(member(f"{top}/{name}".lstrip("/"), data) for name, data in files.items()))


def whole(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def fetched(files: dict[str, bytes], names: Iterable[str] = ()) -> dict[str, bytes]:
    """What of a repository lands in the cache."""
    wanted = set(names) or {"config.json", "tokenizer.json", "model.safetensors"}
    return {name: data for name, data in files.items() if name in wanted}


def got(address: str, cache: DownloadCache, **more: Any) -> CachedModel:
    return fetch_model(address, cache, retry=AT_ONCE, **more)
