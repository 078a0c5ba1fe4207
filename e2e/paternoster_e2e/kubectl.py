"""kubectl and Helm for tests: documents in, documents out, and waiting that says what it waited for."""

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
Document = dict[str, Any]


class CommandError(Exception):
    """A command failed; the text is what it wrote."""


class Kubectl:
    """Commands in one environment, which says which cluster is meant."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)

    def __call__(self, *words: str, document: Document | None = None, timeout: float = 120) -> str:
        """Run ``kubectl``; raises :class:`CommandError`."""
        given = None if document is None else json.dumps(document)
        return self._command("kubectl", *words, given=given, timeout=timeout)

    def helm(self, *words: str, timeout: float = 180) -> str:
        """Run ``helm``; raises :class:`CommandError`."""
        return self._command("helm", *words, given=None, timeout=timeout)

    def apply(self, document: Document) -> None:
        """Server-side apply, as GitOps tools do it."""
        self("apply", "--server-side", "--field-manager=e2e", "--force-conflicts", "--filename=-", document=document)

    def refusal(self, document: Document) -> str:
        """What the API server says against a document; empty when it takes it. Nothing is stored."""
        try:
            self("create", "--dry-run=server", "--filename=-", document=document)
        except CommandError as refused:
            return str(refused)
        return ""

    def get(self, kind: str, name: str, namespace: str = "default") -> Document:
        """One object; raises :class:`CommandError` when there is none."""
        found: Document = json.loads(self("get", kind, name, f"--namespace={namespace}", "--output=json"))
        return found

    def list(self, kind: str, namespace: str = "default", selector: str = "") -> list[Document]:
        words = ["get", kind, f"--namespace={namespace}", "--output=json", f"--selector={selector}"]
        items: list[Document] = json.loads(self(*words))["items"]
        return items

    def _command(self, *command: str, given: str | None, timeout: float) -> str:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, env=self.environment, timeout=timeout
        )
        if done.returncode != 0:
            raise CommandError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout


def until(read: Callable[[], T], what: str, seconds: float = 60, every: float = 0.3) -> T:
    """The first true answer of ``read``; an error of kubectl counts as none. Raises ``AssertionError`` in the end."""
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            answer = read()
        except CommandError as error:
            last = error
        else:
            if answer:
                return answer
            last = answer
        time.sleep(every)
    raise AssertionError(f"not within {seconds:.0f} s: {what}; last: {last}")


def condition(document: Document, kind: str) -> Document:
    """A condition of an object's status; empty when it is not there."""
    found = document.get("status", {}).get("conditions", [])
    return next((entry for entry in found if entry["type"] == kind), {})
