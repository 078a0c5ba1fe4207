"""The API server over plain HTTP: many small requests without a process for each."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paternoster_e2e.kubectl import CommandError, Document, Kubectl

MERGE = "application/merge-patch+json"


class ApiProxy:
    """Requests as the administrator."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str) -> Document:
        return self.send("GET", path)

    def patch(self, path: str, body: Document) -> Document:
        return self.send("PATCH", path, body, MERGE)

    def send(self, method: str, path: str, body: Document | None = None, kind: str = "application/json") -> Document:
        """One request and its answer; raises :class:`CommandError` with the API server's words."""
        request = urllib.request.Request(
            self._address + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": kind},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                document: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            raise CommandError(f"{method} {path}: {error.read().decode(errors='replace')}") from error
        except OSError as error:
            raise CommandError(f"{method} {path}: {error}") from error
        return document


@contextmanager
def api_proxy(kubectl: Kubectl) -> Iterator[ApiProxy]:
    """``kubectl proxy`` for as long as the block runs."""
    command = ["kubectl", "proxy", "--port=0"]
    process = subprocess.Popen(
        command, env=kubectl.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        # Starting to serve on 127.0.0.1:43210
        yield ApiProxy(f"http://{process.stdout.readline().split()[-1]}")
    finally:
        process.terminate()
        process.wait()
