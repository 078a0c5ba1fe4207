"""The Hugging Face hub: its listing checked, its errors named, its files in ranges.

From ``huggingface_hub`` come addresses, tokens and what its answers mean. The requests are ours: the library's read
answers of any length, and its download checks a file's size, but not its hash.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn
from urllib.parse import quote

import httpx2
from huggingface_hub import hf_hub_url
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    get_token,
    hf_raise_for_status,
)
from pydantic import BaseModel, Field, ValidationError

from paternoster_contract import __version__
from paternoster_sources.address import Address
from paternoster_sources.errors import (
    Corrupted,
    GatedModel,
    InvalidAddress,
    NotCached,
    RevisionNotFound,
    SourceNotFound,
    Unauthorized,
    UnsafeListing,
)
from paternoster_sources.plan import MOST_LISTED, Digest, Listing, RemoteFile
from paternoster_sources.remote.http import LONGEST_ERROR, Http, describe_status, from_byte, read_body, read_stream
from paternoster_sources.remote.source import Stream

ENDPOINT = "https://huggingface.co"
LONGEST_LISTING = 64 * 2**20


class _Lfs(BaseModel):
    size: int
    sha256: str


class _Sibling(BaseModel):
    rfilename: str
    size: int
    blob_id: str = Field(alias="blobId")
    lfs: _Lfs | None = None

    def to_file(self) -> RemoteFile:
        if self.lfs is not None:
            return RemoteFile(self.rfilename, self.lfs.size, Digest("sha256", self.lfs.sha256))
        return RemoteFile(self.rfilename, self.size, Digest("git-sha1", self.blob_id))


class _Info(BaseModel):
    """What is used of ``/api/models/...?blobs=true``."""

    sha: str = Field(pattern="^[0-9a-f]{40}$")
    siblings: list[_Sibling] = Field(max_length=MOST_LISTED)


class Hub:
    """One repository at one revision."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._endpoint = os.environ.get("HF_ENDPOINT", ENDPOINT).rstrip("/")
        if not self._endpoint.startswith(("https://", "http://")):
            raise InvalidAddress(f"$HF_ENDPOINT is {self._endpoint!r}: must be an http or https address")
        if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
            raise NotCached(f"model {address.text!r}: is not in the cache, and $HF_HUB_OFFLINE forbids to ask for it")
        self._http = Http(plain=self._endpoint.startswith("http://"))
        # Not the library's: they say what else is installed, for which it asks the hub first.
        self._headers = {"User-Agent": f"paternoster/{__version__}"}
        if token := get_token():
            self._headers["Authorization"] = f"Bearer {token}"
        self._revision = address.revision or "main"

    def close(self) -> None:
        self._http.close()

    def list(self) -> Listing:
        url = f"{self._endpoint}/api/models/{self._address.place}/revision/{quote(self._revision, safe='')}"
        with self._http.get(url, self._headers, params={"blobs": "true"}) as response:
            self._check_response(response)
            data = read_body(response, LONGEST_LISTING)
        try:
            info = _Info.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise UnsafeListing(f"{self._what}: the hub's listing cannot be read: {where}: {first['msg']}") from error
        # Files are requested by commit: a branch may move in between.
        self._revision = info.sha
        return Listing(tuple(sibling.to_file() for sibling in info.siblings), info.sha)

    @contextmanager
    def open_stream(self, file: RemoteFile, start: int) -> Iterator[Stream]:
        url = hf_hub_url(self._address.place, file.name, revision=self._revision, endpoint=self._endpoint)
        with self._http.get(url, self._headers | from_byte(start)) as response:
            self._check_response(response)
            yield read_stream(response, file, start)

    @property
    def _what(self) -> str:
        return f"model {self._address.text!r}"

    def _check_response(self, response: httpx2.Response) -> None:
        """Raise what a status that is no success means."""
        if response.status_code in (200, 206):
            return
        if response.status_code == 416:
            raise Corrupted(f"{self._what}: a file is shorter than it was listed")
        # The library looks into the body for a message, and would read one of any length.
        response._content = read_body(response, LONGEST_ERROR)
        try:
            hf_raise_for_status(response)
        except HfHubHTTPError as error:
            self._raise_refusal(error, response)
        raise describe_status(self._what, response)

    def _raise_refusal(self, error: HfHubHTTPError, response: httpx2.Response) -> NoReturn:
        token = "the token that was sent" if "Authorization" in self._headers else "no token was sent; set $HF_TOKEN"
        match error:
            case GatedRepoError():
                raise GatedModel(
                    f"{self._what}: its terms must be accepted on {self._endpoint}/{self._address.place} by the owner "
                    f"of the token ({token})"
                ) from error
            case RevisionNotFoundError():
                raise RevisionNotFound(
                    f"{self._what}: {self._revision!r} is no branch, tag or commit of {self._address.place}"
                ) from error
            case RepositoryNotFoundError():
                raise SourceNotFound(
                    f"{self._what}: there is no repository {self._address.place} on {self._endpoint}, or it is private "
                    f"({token})"
                ) from error
            case EntryNotFoundError():
                raise SourceNotFound(f"{self._what}: a file that was listed is not there") from error
            case DisabledRepoError():
                raise SourceNotFound(f"{self._what}: the hub has disabled it") from error
        if response.status_code in (401, 403):
            raise Unauthorized(f"{self._what}: {self._endpoint} answers {response.status_code} ({token})") from error
        if response.status_code == 404:
            raise SourceNotFound(f"{self._what}: {self._endpoint} answers 404") from error
        raise describe_status(self._what, response) from error
