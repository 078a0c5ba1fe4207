"""A model's address taken apart: ``hf://``, ``s3://``, ``gs://``, ``https://``, ``oci-archive://``, ``oci-layout://``."""

import re
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from paternoster_sources.errors import InvalidAddress, UnsafeListing
from paternoster_sources.names import LONGEST_NAME, check_name, is_gguf

ALLOWED = (
    "allowed: hf://org/name, hf://org/name@revision, hf://org/name/file.gguf, s3://bucket/prefix, gs://bucket/prefix, "
    "https://host/path/model.gguf, also with #sha256=..., oci-archive:///path/image.tar and oci-layout:///path/folder, "
    "also with #tag=...&path=..."
)
Scheme = Literal["hf", "s3", "gs", "https", "oci-archive", "oci-layout"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
IMAGE_FILES = ("oci-archive", "oci-layout")
"""An image in one tar archive, and in a folder, as skopeo names them."""
LONGEST_ADDRESS = 2048
IN_REGISTRY = (
    "a cluster's nodes mount it into pods; nothing pulls it here: `skopeo copy docker://registry/name:tag "
    "oci-archive:image.tar` writes it to a file, which is oci-archive:///path/image.tar"
)
"""What to do about an ``oci://`` address where there is no cluster."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,254}")
_SPECIAL_REVISION = re.compile(r"(refs/(?:pr|convert)/[A-Za-z0-9._-]+)(?:/(.*))?")
_BUCKET = re.compile(r"[a-z0-9A-Z][a-zA-Z0-9._-]{1,221}")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}")


@dataclass(frozen=True, slots=True)
class Address:
    """``text`` is what was asked for, in messages and as the cache's name for it."""

    text: str
    scheme: Scheme
    place: str
    """The repository ``org/name``, the bucket, host and port, or the path on this machine."""
    prefix: str = ""
    """Folder within a bucket or an image, without a slash at its ends."""
    revision: str | None = None
    """Branch, tag or commit; of an image, what its index calls it."""
    file: str | None = None
    """The one file that is wanted, as the source names it."""
    sha256: str | None = None
    """Digest of that file, in lower case."""

    @property
    def name(self) -> str:
        """What the model is called where nothing in its files says so."""
        path = self.place if self.scheme in IMAGE_FILES else self.prefix or self.place
        return path.rpartition("/")[2]


def is_remote(text: str) -> bool:
    """Whether ``text`` is for this package to resolve."""
    return text.partition("://")[0] in SCHEMES and "://" in text


def parse_address(text: str) -> Address:
    """Raises :class:`InvalidAddress`."""
    if len(text) > LONGEST_ADDRESS or not text.isprintable() or " " in text or "\\" in text:
        raise InvalidAddress(
            f"model {text[:200]!r}: must have at most {LONGEST_ADDRESS} printable characters, no spaces or '\\'"
        )
    scheme, separator, rest = text.partition("://")
    if scheme == "oci":
        raise InvalidAddress(f"model {text!r}: {IN_REGISTRY}")
    if not separator or scheme not in SCHEMES:
        raise InvalidAddress(f"model {text!r}: unknown scheme {scheme!r}; {ALLOWED}")
    if scheme == "https":
        return _https_address(text)
    if scheme in IMAGE_FILES:
        return _image_file(text, scheme, rest)
    if "?" in rest or "#" in rest:
        raise InvalidAddress(f"model {text!r}: must have no '?' and no '#'; {ALLOWED}")
    return _hub_address(text, rest) if scheme == "hf" else _bucket_address(text, scheme, rest)


def _hub_address(text: str, rest: str) -> Address:
    org, _, tail = rest.partition("/")
    name, separator, after = _split_first(tail)
    for part in (org, name):
        if not _NAME.fullmatch(part) or ".." in part or "--" in part:
            raise InvalidAddress(f"model {text!r}: {part!r} is no name of the hub; {ALLOWED}")
    revision, file = None, after
    if separator == "@":
        special = _SPECIAL_REVISION.fullmatch(after)
        revision, file = (special[1], special[2] or "") if special else _split_halves(after)
        revision = unquote(revision)
        if not _REVISION.fullmatch(revision) or ".." in revision:
            raise InvalidAddress(f"model {text!r}: {revision!r} is no branch, tag or commit; write / in it as %2F")
    return Address(text, "hf", f"{org}/{name}", revision=revision, file=_check_gguf(text, file) if file else None)


def _split_first(tail: str) -> tuple[str, str, str]:
    """What is before the first ``@`` or ``/``, which of both, and what follows."""
    at = min((index for index in (tail.find("@"), tail.find("/")) if index >= 0), default=len(tail))
    return tail[:at], tail[at : at + 1], tail[at + 1 :]


def _split_halves(text: str) -> tuple[str, str]:
    before, _, after = text.partition("/")
    return before, after


def _bucket_address(text: str, scheme: str, rest: str) -> Address:
    bucket, path = _split_halves(rest)
    if not _BUCKET.fullmatch(bucket):
        raise InvalidAddress(f"model {text!r}: {bucket!r} is no name of a bucket; {ALLOWED}")
    path = path.rstrip("/")
    if path:
        _check_path(text, path)
    prefix, file = _folder_and_gguf(path)
    return Address(text, scheme, bucket, prefix, file=file)  # type: ignore[arg-type]


def _https_address(text: str) -> Address:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidAddress(f"model {text!r}: {error}; {ALLOWED}") from error
    if not host or "@" in parts.netloc:
        raise InvalidAddress("a model's https address must have a host, and neither user nor password in it")
    if "?" in text:
        raise InvalidAddress(f"model {text.partition('?')[0]!r}: must have no query, which would be in every log")
    # The model's folder in the cache has this name.
    if parts.netloc in (".", "..") or len(parts.netloc.encode()) > LONGEST_NAME:
        raise InvalidAddress(
            f"model {text!r}: its host must have a name of at most {LONGEST_NAME} bytes, not {parts.netloc!r}"
        )
    fragment_fields = dict(parse_qsl(parts.fragment, keep_blank_values=True))
    digest = fragment_fields.pop("sha256", None)
    if fragment_fields or (parts.fragment and digest is None) or (digest is not None and not _SHA256.fullmatch(digest)):
        raise InvalidAddress(f"model {text!r}: after '#' only sha256= with 64 hexadecimal digits is known")
    file = _check_gguf(text, unquote(parts.path.lstrip("/")))
    return Address(text, "https", parts.netloc, file=file, sha256=digest.lower() if digest else None)


def _image_file(text: str, scheme: str, rest: str) -> Address:
    path, _, fragment = rest.partition("#")
    place = unquote(path)
    if not place.startswith("/") or "?" in path:
        raise InvalidAddress(f"model {text!r}: must have three slashes and no '?'; {ALLOWED}")
    _check_path(text, place[1:])
    fragment_fields = dict(parse_qsl(fragment, keep_blank_values=True))
    tag, inside = fragment_fields.pop("tag", None), fragment_fields.pop("path", "").strip("/")
    if fragment_fields or (tag is not None and not _TAG.fullmatch(tag)):
        raise InvalidAddress(f"model {text!r}: after '#' only tag= and path= are known, tag without spaces; {ALLOWED}")
    if inside:
        _check_path(text, inside)
    prefix, file = _folder_and_gguf(inside)
    return Address(text, scheme, place, prefix, tag, file)  # type: ignore[arg-type]


def _folder_and_gguf(path: str) -> tuple[str, str | None]:
    """A path below some top taken for a folder, or for a file in one."""
    if not is_gguf(path):
        return path, None
    prefix, _, file = path.rpartition("/")
    return prefix, file


def _check_gguf(text: str, file: str) -> str:
    _check_path(text, file)
    if not is_gguf(file):
        raise InvalidAddress(f"model {text!r}: {file!r} must be a .gguf file; {ALLOWED}")
    return file


def _check_path(text: str, path: str) -> None:
    try:
        check_name(path)
    except UnsafeListing as error:
        raise InvalidAddress(f"model {text!r}: {path!r} is no path below it; {ALLOWED}") from error
