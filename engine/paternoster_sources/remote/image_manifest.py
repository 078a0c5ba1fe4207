"""Which image of an OCI layout is meant, and the layers it has. Nothing is believed but what its digest says.

Reference: the OCI image specification, ``image-index.md``, ``manifest.md`` and ``annotations.md``.
"""

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, Field, ValidationError

from paternoster_sources.errors import AmbiguousWeights, Corrupted, NoWeights, RevisionNotFound, TooLarge, UnsafeListing
from paternoster_sources.remote.blobs import INDEX, Blobs

LONGEST_DOCUMENT = 4 * 2**20
"""Bytes, as in registries."""
MOST_LAYERS = 4096
DEEPEST = 4
"""Indexes within indexes."""
NAME = "org.opencontainers.image.ref.name"
_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_Document = TypeVar("_Document", bound=BaseModel)


class _Platform(BaseModel):
    os: str = ""
    architecture: str = ""


class Descriptor(BaseModel):
    """A blob, as what refers to it says."""

    media_type: str = Field(alias="mediaType", max_length=255)
    digest: str = Field(pattern="^sha256:[0-9a-f]{64}$")
    size: int = Field(ge=0, le=2**43)
    annotations: dict[str, str] = Field(default_factory=dict)
    platform: _Platform | None = None

    @property
    def file(self) -> str:
        """Its name in a layout."""
        return f"blobs/{self.digest.replace(':', '/')}"

    @property
    def name(self) -> str:
        return self.annotations.get(NAME, "")


class _Index(BaseModel):
    manifests: list[Descriptor] = Field(max_length=MOST_LAYERS)


class _Manifest(BaseModel):
    layers: list[Descriptor] = Field(max_length=MOST_LAYERS)


@dataclass(frozen=True, slots=True)
class Image:
    digest: str
    """Digest of its manifest."""
    layers: tuple[Descriptor, ...]
    """The lowest first."""


def find_image(blobs: Blobs, wanted: str | None) -> Image:
    """The one that the index calls ``wanted``, by name or digest, or its only one.

    Raises :class:`SourceError`, and ``OSError``.
    """
    found = _find_named(_read_document(_open_index(blobs), _Index).manifests, wanted)
    for _ in range(DEEPEST):
        if found.media_type not in _INDEXES:
            return Image(found.digest, tuple(_read_document(_read_blob(blobs, found), _Manifest).layers))
        found = _of_this_machine(_read_document(_read_blob(blobs, found), _Index).manifests)
    raise UnsafeListing(f"indexes within indexes, more than {DEEPEST}")


def _find_named(images: Sequence[Descriptor], wanted: str | None) -> Descriptor:
    matching = [image for image in images if wanted is None or wanted in (image.name, image.digest)]
    found = {image.digest: image for image in matching}
    if len(found) == 1:
        return next(iter(found.values()))
    has = ", ".join(sorted({repr(image.name or image.digest)[:200] for image in images})[:20]) or "none"
    if wanted is not None and not found:
        raise RevisionNotFound(f"no image is called {wanted!r}; it has {has}")
    if not found:
        raise NoWeights("its index names no image")
    raise AmbiguousWeights(f"has several images; add #tag= and one of these to the address: {has}")


def _of_this_machine(images: Sequence[Descriptor]) -> Descriptor:
    """Select the image of this machine from one for several kinds."""
    machine = platform.machine()
    own = _Platform(os="linux", architecture=_ARCHITECTURES.get(machine, machine))
    # What has no platform is for all; what attests to an image is for "unknown".
    found = [image for image in images if image.platform in (None, own)]
    if len(found) != 1:
        raise NoWeights(f"has {len(found)} images for {own.os}/{own.architecture} among {len(images)}: must have one")
    return found[0]


def _open_index(blobs: Blobs) -> bytes:
    with blobs.open_blob(INDEX) as file:
        data = file.read(LONGEST_DOCUMENT + 1)
    if len(data) > LONGEST_DOCUMENT:
        raise TooLarge(f"{INDEX} has more than {LONGEST_DOCUMENT} bytes")
    return data


def _read_blob(blobs: Blobs, of: Descriptor) -> bytes:
    if of.size > LONGEST_DOCUMENT:
        raise TooLarge(f"{of.digest} has {of.size} bytes: must be at most {LONGEST_DOCUMENT}")
    with blobs.open_blob(of.file) as file:
        data = file.read(of.size + 1)
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != of.digest:
        raise Corrupted(f"the sha256 of {of.file} is {hashlib.sha256(data).hexdigest()}")
    return data


def _read_document(data: bytes, kind: type[_Document]) -> _Document:
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UnsafeListing(f"{kind.__name__.strip('_').lower()} of the image: {where}: {first['msg']}") from error
