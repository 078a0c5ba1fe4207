"""A model's address taken apart: ``hf://``, ``s3://``, ``gs://`` and ``https://``."""

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from paternoster_sources.errors import InvalidAddress, UnsafeListing
from paternoster_sources.names import check_name, is_gguf

ALLOWED = (
    "allowed: hf://org/name, hf://org/name@revision, hf://org/name/file.gguf, s3://bucket/prefix, gs://bucket/prefix, "
    "https://host/path/model.gguf, the last also with #sha256=..."
)
SCHEMES = ("hf", "s3", "gs", "https")
LONGEST_ADDRESS = 2048

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,254}")
_SPECIAL_REVISION = re.compile(r"(refs/(?:pr|convert)/[A-Za-z0-9._-]+)(?:/(.*))?")
_BUCKET = re.compile(r"[a-z0-9A-Z][a-zA-Z0-9._-]{1,221}")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class Address:
    """``text`` is what was asked for, in messages and as the cache's name for it."""

    text: str
    scheme: Literal["hf", "s3", "gs", "https"]
    place: str
    """The repository ``org/name``, the bucket, or host and port."""
    prefix: str = ""
    """Folder within a bucket, without a slash at its ends."""
    revision: str | None = None
    file: str | None = None
    """The one file that is wanted, as the source names it."""
    sha256: str | None = None
    """Of that file, in lower case."""

    @property
    def name(self) -> str:
        """What the model is called where nothing in its files says so."""
        return (self.prefix or self.place).rpartition("/")[2]


def is_remote(text: str) -> bool:
    """Whether ``text`` is for this package to resolve."""
    return text.partition("://")[0] in SCHEMES and "://" in text


def parse(text: str) -> Address:
    """Raises :class:`InvalidAddress`."""
    if len(text) > LONGEST_ADDRESS or not text.isprintable() or " " in text or "\\" in text:
        raise InvalidAddress(
            f"model {text[:200]!r}: must have at most {LONGEST_ADDRESS} printable characters, no spaces or '\\'"
        )
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in SCHEMES:
        raise InvalidAddress(f"model {text!r}: unknown scheme {scheme!r}; {ALLOWED}")
    if scheme == "https":
        return _https(text)
    if "?" in rest or "#" in rest:
        raise InvalidAddress(f"model {text!r}: must have no '?' and no '#'; {ALLOWED}")
    return _hub(text, rest) if scheme == "hf" else _bucket(text, scheme, rest)


def _hub(text: str, rest: str) -> Address:
    org, _, tail = rest.partition("/")
    name, mark, after = _first(tail)
    for said in (org, name):
        if not _NAME.fullmatch(said) or ".." in said or "--" in said:
            raise InvalidAddress(f"model {text!r}: {said!r} is no name of the hub; {ALLOWED}")
    revision, file = None, after
    if mark == "@":
        special = _SPECIAL_REVISION.fullmatch(after)
        revision, file = (special[1], special[2] or "") if special else _halves(after)
        revision = unquote(revision)
        if not _REVISION.fullmatch(revision) or ".." in revision:
            raise InvalidAddress(f"model {text!r}: {revision!r} is no branch, tag or commit; write / in it as %2F")
    return Address(text, "hf", f"{org}/{name}", revision=revision, file=_gguf(text, file) if file else None)


def _first(tail: str) -> tuple[str, str, str]:
    """What is before the first ``@`` or ``/``, which of both, and what follows."""
    at = min((index for index in (tail.find("@"), tail.find("/")) if index >= 0), default=len(tail))
    return tail[:at], tail[at : at + 1], tail[at + 1 :]


def _halves(text: str) -> tuple[str, str]:
    before, _, after = text.partition("/")
    return before, after


def _bucket(text: str, scheme: str, rest: str) -> Address:
    bucket, path = _halves(rest)
    if not _BUCKET.fullmatch(bucket):
        raise InvalidAddress(f"model {text!r}: {bucket!r} is no name of a bucket; {ALLOWED}")
    path = path.rstrip("/")
    if path:
        _checked(text, path)
    assert scheme in ("s3", "gs")
    if is_gguf(path):
        prefix, _, file = path.rpartition("/")
        return Address(text, scheme, bucket, prefix, file=file)  # type: ignore[arg-type]
    return Address(text, scheme, bucket, path)  # type: ignore[arg-type]


def _https(text: str) -> Address:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidAddress(f"model {text!r}: {error}; {ALLOWED}") from error
    if not host or "@" in parts.netloc:
        raise InvalidAddress("a model's https address must have a host, and neither user nor password in it")
    if "?" in text:
        raise InvalidAddress(f"model {text.partition('?')[0]!r}: must have no query, which would be in every log")
    said = dict(parse_qsl(parts.fragment, keep_blank_values=True))
    digest = said.pop("sha256", None)
    if said or (parts.fragment and digest is None) or (digest is not None and not _SHA256.fullmatch(digest)):
        raise InvalidAddress(f"model {text!r}: after '#' only sha256= with 64 hexadecimal digits is known")
    file = _gguf(text, unquote(parts.path.lstrip("/")))
    return Address(text, "https", parts.netloc, file=file, sha256=digest.lower() if digest else None)


def _gguf(text: str, file: str) -> str:
    _checked(text, file)
    if not is_gguf(file):
        raise InvalidAddress(f"model {text!r}: {file!r} must be a .gguf file; {ALLOWED}")
    return file


def _checked(text: str, path: str) -> None:
    try:
        check_name(path)
    except UnsafeListing as error:
        raise InvalidAddress(f"model {text!r}: {path!r} is no path below it; {ALLOWED}") from error
