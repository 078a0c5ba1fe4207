"""A Hugging Face hub on loopback, with its CDN on another port: what real clients ask for, as the hub answers it."""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from tests.sources.file_server import Answer, FileServer

LFS_FROM = 1024
"""Bytes from which a file is kept in LFS."""


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Repo:
    files: dict[str, bytes]
    commit: str = "a" * 40
    branches: tuple[str, ...] = ("main",)
    private: bool = False
    gated: bool = False
    listing: dict[str, object] = field(default_factory=dict)
    """What the listing says otherwise than it should."""


class LoopbackHub:
    """``HF_ENDPOINT`` is ``url``; ``token`` opens private repositories."""

    token = "hf_" + "t" * 34

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.repos: dict[str, Repo] = {}
        self.blobs: dict[str, bytes] = {}
        """Blobs by SHA-256: what the CDN sends, whatever the hub has listed."""
        self.hub = FileServer(self._hub, host=host)
        self.cdn = FileServer(self._cdn, host=host)

    @property
    def url(self) -> str:
        return self.hub.url

    @contextlib.contextmanager
    def running(self) -> Iterator["LoopbackHub"]:
        with self.hub.running(), self.cdn.running():
            yield self

    def add(self, name: str, files: dict[str, bytes], **more: object) -> Repo:
        repo = Repo(files, **more)  # type: ignore[arg-type]
        self.repos[name] = repo
        self.blobs |= {sha256(data): data for data in files.values() if len(data) >= LFS_FROM}
        return repo

    def blob_path(self, data: bytes) -> str:
        return f"/blobs/{sha256(data)}"

    def _hub(self, path: str, headers: dict[str, str]) -> Answer:
        parts = urlsplit(path)
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if token and token != self.token:
            return _error(401, "", "Invalid credentials in Authorization header")
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", parts.path):
            return self._listing(found[1], unquote(found[2] or "main"), token, "blobs=" in parts.query.lower())
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", parts.path):
            return self._resolve(found[1], unquote(found[2]), unquote(found[3]), token)
        return _error(404, "", "")

    def _listing(self, name: str, revision: str, token: str, sizes: bool) -> Answer:
        repo = self.repos.get(name)
        if repo is None or (repo.private and not token):
            return _error(404 if token else 401, "RepoNotFound", "Repository not found")
        if revision not in (*repo.branches, repo.commit):
            return _error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        siblings = [_sibling(*file) if sizes else {"rfilename": file[0]} for file in repo.files.items()]
        document = {"id": name, "sha": repo.commit, "siblings": siblings}
        return Answer(json.dumps(document | repo.listing).encode(), headers={"Content-Type": "application/json"})

    def _resolve(self, name: str, revision: str, file: str, token: str) -> Answer:
        repo = self.repos[name]
        if repo.gated:
            return _error(403 if token else 401, "GatedRepo", f"Access to model {name} is restricted")
        if revision not in (*repo.branches, repo.commit):
            return _error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if file not in repo.files:
            return _error(404, "EntryNotFound", "Entry not found")
        data = repo.files[file]
        headers = {"X-Repo-Commit": repo.commit, "Accept-Ranges": "bytes"}
        if len(data) < LFS_FROM:
            return Answer(data, headers=headers | {"ETag": f'"{git_sha1(data)}"'})
        headers |= {"X-Linked-Size": str(len(data)), "X-Linked-Etag": f'"{sha256(data)}"'}
        return Answer(status=302, headers=headers | {"Location": self.cdn.url + self.blob_path(data)})

    def _cdn(self, path: str, headers: dict[str, str]) -> Answer:
        data = self.blobs.get(path.removeprefix("/blobs/"))
        return Answer(data, headers={"ETag": '"cdn"'}) if data is not None else Answer(status=404)


def _sibling(name: str, data: bytes) -> dict[str, object]:
    entry: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": git_sha1(data)}
    if len(data) >= LFS_FROM:
        entry["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 134}
    return entry


def _error(status: int, code: str, message: str) -> Answer:
    headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
    return Answer(json.dumps({"error": message}).encode(), status, headers)
