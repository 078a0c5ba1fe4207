"""The address of an image in a registry taken apart; a cluster's nodes mount it into pods. Pure."""

import re
from dataclasses import dataclass

from paternoster_sources.errors import InvalidAddress, UnsafeListing
from paternoster_sources.names import check_name

ALLOWED = (
    "allowed: oci://registry/name, oci://registry/name:tag and oci://registry/name@sha256:..., the last two also with "
    "/folder or /path/file.gguf of the image behind them; the registry has a dot or a port in it, such as docker.io"
)
_SCHEME = "oci://"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REGISTRY = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:))(?::[0-9]{1,5})?"
_NAME = rf"{_REGISTRY}/{_PART}(?:/{_PART})*"
_TAG, _DIGEST = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", "@sha256:[0-9a-f]{64}"
_ADDRESS = re.compile(rf"(?P<reference>{_NAME}(?P<version>(?:{_TAG})?(?:{_DIGEST})?))(?P<path>/.*)?")


@dataclass(frozen=True, slots=True)
class ImageAddress:
    """An image and where in it the model is."""

    reference: str
    """Reference that names a container's image."""
    path: str
    """Folder or .gguf file in the image, without a slash at its ends; empty where models usually are."""


def is_image(text: str) -> bool:
    return text.startswith(_SCHEME)


def parse_image(text: str) -> ImageAddress:
    """Raises :class:`InvalidAddress`."""
    found = _ADDRESS.fullmatch(text.removeprefix(_SCHEME)) if is_image(text) else None
    # Without tag and digest a path would look like the name.
    if found is None or (found["path"] and not found["version"]):
        raise InvalidAddress(f"model {text[:300]!r}: is no image and path in it; {ALLOWED}")
    path = (found["path"] or "").removeprefix("/").rstrip("/")
    try:
        # An address of a file says some characters by their numbers.
        if path and "%" in check_name(path):
            raise UnsafeListing("%")
    except UnsafeListing as error:
        raise InvalidAddress(
            f"model {text[:300]!r}: {path[:200]!r} is no path below it, without '%'; {ALLOWED}"
        ) from error
    return ImageAddress(found["reference"], path)
