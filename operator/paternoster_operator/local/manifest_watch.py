"""Manifest files as they are now, and again when they change."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from paternoster_operator.api.manifest import InvalidManifest, load_resources, load_secrets
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.port import Key
from paternoster_operator.local.unsupported import list_refused

T = TypeVar("T")


class ManifestWatch:
    """Reads the files; a broken edit is reported once and the last good resources stay."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._seen: list[bytes | None] | None = None

    def read(self) -> list[LLMDeployment]:
        """All resources of all files; raises :class:`InvalidManifest` with every fault."""
        resources: list[LLMDeployment] = []
        errors: list[str] = []
        for file in self._files:
            try:
                resources += load_resources(file)
            except InvalidManifest as invalid:
                errors += invalid.errors
        errors += [
            f"metadata.name: {namespace}/{name} stands in several files: must be unique"
            for namespace, name in _find_repeated((r.metadata.namespace, r.metadata.name) for r in resources)
        ]
        errors += [
            f"spec.model: {name} is the servedName or among the aliases of several LLMDeployments: must be unique on "
            "this machine"
            for name in _find_repeated(name for r in resources for name in r.claimed_names)
        ]
        errors += list_refused(resources)
        if errors:
            raise InvalidManifest(errors)
        return resources

    def read_secrets(self) -> dict[Key, dict[str, str]]:
        """What all Secrets of all files hold; raises :class:`InvalidManifest`."""
        return {Key(*name): data for file in self._files for name, data in load_secrets(file).items()}

    def has_changed(self) -> bool:
        """Whether any file's content differs from the last call's; the first call says no."""
        content = [_read_content(file) for file in self._files]
        before, self._seen = self._seen, content
        return before is not None and before != content


def _read_content(file: Path) -> bytes | None:
    """None while it cannot be read, as in the moment an editor replaces it."""
    try:
        return file.read_bytes()
    except OSError:
        return None


def _find_repeated(values: Iterable[T]) -> list[T]:
    return [value for value, count in Counter(values).items() if count > 1]
