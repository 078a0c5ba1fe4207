"""Folders in S3 and Google Cloud Storage, with the credentials that their own tools find in the environment."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, NoReturn

import obstore
from obstore import exceptions
from obstore.store import GCSStore, S3Store

from paternoster_sources.address import Address
from paternoster_sources.errors import Corrupted, Interrupted, SourceNotFound, TooLarge, Unauthorized
from paternoster_sources.plan import MOST_LISTED, Digest, Listing, RemoteFile
from paternoster_sources.remote.source import Stream

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

RANGE = 64 * 2**20
"""Bytes of one request: the library's time limit is for a whole answer."""
CHUNK = 64 * 1024
"""Bytes that a break may lose."""
LIMIT = timedelta(minutes=5)

_MD5 = re.compile(r'"?([0-9a-f]{32})"?')
_STATUS = re.compile(r"status code: (\d{3})")
_ROLE = ("/latest/api/token", "/latest/meta-data/", "/computeMetadata/")
"""Where the libraries of clouds ask for a machine's credentials."""
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")


class Bucket:
    """The objects below one prefix of a bucket."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._prefix = f"{address.prefix}/" if address.prefix else ""
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        options: ClientConfig = {"connect_timeout": timedelta(seconds=10), "timeout": LIMIT}
        if authority := os.environ.get("SSL_CERT_FILE"):
            with open(authority, "rb") as file:
                options["root_certificate"] = file.read()
        # Attempts are counted in one place, for all sources.
        once: RetryConfig = {"max_retries": 0}
        self._store: S3Store | GCSStore
        try:
            if address.scheme == "s3":
                options["allow_http"] = endpoint.startswith("http://")
                self._store = S3Store(address.place, client_options=options, retry_config=once)
            else:
                options["allow_http"] = "GOOGLE_SERVICE_ACCOUNT_KEY" in os.environ
                self._store = GCSStore(address.place, client_options=options, retry_config=once)
        except exceptions.BaseError as error:
            raise Unauthorized(f"{self._what}: {_one_line(error)}") from error

    def close(self) -> None:
        """Connections go with the object."""

    def list(self) -> Listing:
        try:
            if self._address.file is not None:
                found = [obstore.head(self._store, self._prefix + self._address.file)]
            else:
                found = []
                for some in obstore.list(self._store, self._prefix or None):
                    found.extend(some)
                    if len(found) > MOST_LISTED:
                        raise TooLarge(f"{self._what}: has more than {MOST_LISTED} objects")
        except (exceptions.BaseError, FileNotFoundError, ValueError) as error:
            self._raise_refusal(error)
        return Listing(tuple(self._describe_file(meta["path"], meta["size"], meta["e_tag"]) for meta in found))

    @contextmanager
    def open_stream(self, file: RemoteFile, start: int) -> Iterator[Stream]:
        try:
            yield Stream(start, chain.from_iterable(self._read_ranges(file, start)))
        except (exceptions.BaseError, FileNotFoundError) as error:
            self._raise_refusal(error)

    def _read_ranges(self, file: RemoteFile, start: int) -> Iterator[Iterator[bytes]]:
        while start < file.size:
            end = min(start + RANGE, file.size)
            answer = obstore.get(
                self._store, self._prefix + file.name, options={"range": (start, end), "if_match": file.version}
            )
            if answer.meta["size"] != file.size:
                raise Corrupted(
                    f"{self._what}: {file.name} has {answer.meta['size']} bytes, was listed with {file.size}"
                )
            yield iter(answer.stream(min_chunk_size=CHUNK))
            start = end

    def _describe_file(self, path: str, size: int, tag: str | None) -> RemoteFile:
        """An entity tag is the MD5 of an object that was put in one piece; of several it ends in their count."""
        md5 = _MD5.fullmatch(tag or "") if self._address.scheme == "s3" else None
        return RemoteFile(path.removeprefix(self._prefix), size, Digest("md5", md5[1]) if md5 else None, tag)

    @property
    def _what(self) -> str:
        return f"model {self._address.text!r}"

    def _raise_refusal(self, error: Exception) -> NoReturn:
        message = _one_line(error)
        found = _STATUS.search(str(error))
        status = int(found[1]) if found else 0
        match error:
            case FileNotFoundError():
                status = 404
            case exceptions.PermissionDeniedError() | exceptions.UnauthenticatedError():
                status = 403
            case exceptions.PreconditionError():
                raise Corrupted(f"{self._what}: it changed while it was fetched: {message}") from error
        if any(path in str(error) for path in _ROLE):
            raise Unauthorized(
                f"{self._what}: there are no credentials in the environment ($AWS_ACCESS_KEY_ID, "
                f"$GOOGLE_APPLICATION_CREDENTIALS), and the machine has no role that gives some: {message}"
            ) from error
        if status == 404:
            raise SourceNotFound(f"{self._what}: there is no such bucket or object: {message}") from error
        if status in (400, 401, 403):
            raise Unauthorized(f"{self._what}: {message}") from error
        if "configured region" in str(error):
            raise SourceNotFound(
                f"{self._what}: the bucket is in another region than $AWS_REGION: {message}"
            ) from error
        raise Interrupted(message) from error


def _one_line(error: Exception) -> str:
    """The library's message without what it says of its own insides, and of a document the code in it alone."""
    text = str(error).partition("\n\nDebug source:")[0]
    code = _CODE.search(text)
    words = " ".join(text.partition("<")[0].split())[:500].removesuffix(":")
    return f"{words}: {code[1]}" if code else words or type(error).__name__
